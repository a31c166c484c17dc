/// The bytes that all keys of a [`Redlock`](crate::Redlock) have in front of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prefix {
    bytes: Box<[u8]>,
    tag_len: usize,
}

impl Prefix {
    /// Creates a prefix. On the servers of a cluster, up to `tag_len` more bytes are in front of each key.
    pub(crate) fn new(bytes: Box<[u8]>, tag_len: usize) -> Self {
        Self { bytes, tag_len }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns how many bytes of a key on a server are not the caller's.
    pub(crate) fn len_on_servers(&self) -> usize {
        self.tag_len + self.bytes.len()
    }

    pub(super) fn tag_len(&self) -> usize {
        self.tag_len
    }
}
