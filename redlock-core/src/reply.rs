/// What became of a request to one node, as far as the algorithm cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// The node did it: it set, extended or deleted our key.
    Granted,
    /// The node did not, because of the key: it is another's, or no longer ours.
    Denied,
    /// The node did not, because of itself: it answered with an error (out of memory, loading,
    /// read-only ...), or the request never left.
    Refused,
    /// Nobody knows: the answer is late, or the connection broke. The request *may have happened*,
    /// or may still happen.
    Unknown,
}
