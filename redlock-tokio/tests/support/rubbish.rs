//! Answers of a server that make no sense, complete and cut short.

use super::fake::Act::{self, Close, Hush, Say};

/// Returns all of them with their names.
pub(crate) fn all() -> Vec<(String, Vec<Act>)> {
    [whole(), partial(), lengths(), errors(), strangers()].concat()
}

fn named(name: &str, acts: impl Into<Vec<Act>>) -> (String, Vec<Act>) {
    (name.to_owned(), acts.into())
}

/// Well-formed answers of a type that no command for locks has.
fn whole() -> Vec<(String, Vec<Act>)> {
    [
        ("array", "*1\r\n+OK\r\n"),
        ("array of arrays", "*2\r\n*1\r\n*1\r\n+OK\r\n*0\r\n"),
        ("map", "%1\r\n+OK\r\n+OK\r\n"),
        ("map of arrays", "%1\r\n*1\r\n:1\r\n*1\r\n%0\r\n"),
        ("set", "~1\r\n+OK\r\n"),
        ("double", ",1.0\r\n"),
        ("not a number", ",nan\r\n"),
        ("boolean", "#t\r\n"),
        ("big number", "(1\r\n"),
        ("verbatim string", "=6\r\ntxt:OK\r\n"),
        ("attribute", "|1\r\n+a\r\n+b\r\n+OK\r\n"),
        ("status in a bulk string", "$2\r\nOK\r\n"),
        ("empty bulk string", "$0\r\n\r\n"),
        ("another status", "+KO\r\n"),
        ("empty status", "+\r\n"),
        ("number", ":1\r\n"),
        ("negative number", ":-1\r\n"),
        (
            "confirmation of a subscription",
            ">3\r\n+subscribe\r\n+a\r\n:1\r\n",
        ),
    ]
    .map(|(name, text)| named(name, [Say(text.into())]))
    .into()
}

/// Answers that are cut short by silence or by the end of the connection.
fn partial() -> Vec<(String, Vec<Act>)> {
    let begun = [
        "",
        "+",
        "+OK\r",
        "$5\r\nab",
        "$5\r\nabcde",
        "*2\r\n+OK\r\n",
        "-ERR x",
        ":1",
    ];
    let ends = [("then nothing", Hush), ("then the end", Close)];
    begun
        .iter()
        .flat_map(|text| {
            ends.clone().map(|(how, end)| {
                let acts = [Say((*text).into()), end];
                named(&format!("{text:?} {how}"), acts)
            })
        })
        .chain([named("a push and no answer", [Say(PUSH.into()), Hush])])
        .collect()
}

/// A message that a server may send at any time to a client over RESP3.
pub(crate) const PUSH: &str = ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n";

/// Lengths and numbers that are too large, negative, or not numbers.
fn lengths() -> Vec<(String, Vec<Act>)> {
    let most = i64::MAX;
    let deep = "*1\r\n".repeat(100_000);
    let wide = "*4096\r\n".repeat(99);
    ['$', '*', '%', '~', '>', '|', '=', '!']
        .iter()
        .flat_map(|kind| {
            ["536870912".into(), most.to_string(), "-2".into()]
                .map(|length| format!("{kind}{length}\r\n"))
        })
        .chain(
            [
                "$",
                "*",
                ":",
                "$x",
                "*1.5",
                "$99999999999999999999",
                ":0x1",
                ",",
                "#x",
            ]
            .map(|line| format!("{line}\r\n")),
        )
        .map(|text| named(&format!("{text:?}"), [Say(text.into()), Hush]))
        .chain([
            named("deeply nested", [Say(deep.into()), Hush]),
            named("deep and wide", [Say(wide.into()), Hush]),
        ])
        .collect()
}

fn errors() -> Vec<(String, Vec<Act>)> {
    let long = "x".repeat(1 << 20);
    let blob = format!("!{}\r\nERR {long}\r\n", long.len() + 4);
    let long_code = format!("-{long}\r\n");
    let long_message = format!("-ERR {long}\r\n");
    let wide = format!("-ERR {}\r\n", "\u{1f512}".repeat(1000));
    let errors: [(&str, &[u8]); 10] = [
        ("error of a megabyte", long_message.as_bytes()),
        ("error code of a megabyte", long_code.as_bytes()),
        ("blob error of a megabyte", blob.as_bytes()),
        ("error of wide characters", wide.as_bytes()),
        ("error that is no text", b"-ERR \xff\xfe\xfd\r\n"),
        ("status that is no text", b"+\xff\xfe\xfd\r\n"),
        ("empty error", b"-\r\n"),
        ("blank error", b"- \r\n"),
        ("endless NOSCRIPT", b"-NOSCRIPT no\r\n"),
        ("error with a bell", b"-ERR \x07\x1b[2J\n\0\r\n"),
    ];
    errors
        .map(|(name, bytes)| named(name, [Say(bytes.into())]))
        .into()
}

/// Servers of another kind.
fn strangers() -> Vec<(String, Vec<Act>)> {
    let all: [(&str, &[u8]); 6] = [
        (
            "web server",
            b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
        ),
        ("TLS alert", &[0x15, 3, 1, 0, 2, 2, 40]),
        ("SSH", b"SSH-2.0-OpenSSH_9.2p1\r\n"),
        ("zeros", &[0; 64]),
        ("bytes", &[0xff, 0xfe, 0x80, 0xc0, 13, 10, 0xf5]),
        ("empty lines", b"\r\n\r\n"),
    ];
    all.map(|(name, bytes)| named(name, [Say(bytes.into()), Hush]))
        .into()
}
