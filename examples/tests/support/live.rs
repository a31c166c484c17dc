use reqwest::{Response, StatusCode};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::SOON;

/// The live states of one hall, as a page receives them.
pub(crate) struct Live {
    stream: Response,
    unread: String,
    hall: &'static str,
}

impl Live {
    pub(crate) async fn open(url: &str) -> Self {
        Self::of_hall(url, "rock").await
    }

    /// Selects another hall of the same page.
    pub(crate) async fn of_hall(url: &str, hall: &'static str) -> Self {
        let stream = reqwest::get(format!("{url}/events/rock/live")).await;
        let stream = stream.expect("an answer");
        assert_eq!(stream.status(), StatusCode::OK);
        assert_eq!(stream.headers()["content-type"], "text/event-stream");
        let unread = String::new();
        Self {
            stream,
            unread,
            hall,
        }
    }

    /// Returns the next state, or `None` if the stream has ended.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some((event, rest)) = self.unread.split_once("\n\n") {
                let data = event.lines().find_map(|it| it.strip_prefix("data: "));
                let state = data.map(|it| serde_json::from_str::<Value>(it).expect("JSON"));
                self.unread = rest.to_owned();
                match state {
                    Some(state) if state["event"] == self.hall => return Some(state),
                    _ => continue, // another hall, or a comment, which keeps the connection alive
                }
            }
            let chunk = self.stream.chunk().await.expect("no broken stream")?;
            self.unread += str::from_utf8(&chunk).expect("text");
        }
    }

    /// Reads until a state satisfies the condition.
    pub(crate) async fn shows(&mut self, what: &str, is_shown: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let reading = async {
            loop {
                last = self.next().await.expect("the stream goes on");
                if is_shown(&last) {
                    break;
                }
            }
        };
        let in_time = timeout(SOON, reading).await;
        assert!(in_time.is_ok(), "{what} is not shown, but {last}");
        last
    }

    /// Reads until the seat has this owner.
    pub(crate) async fn shows_owner(&mut self, seat: usize, owner: Option<&str>) {
        let taken = |state: &Value| state["taken"][seat.to_string()]["owner"].clone();
        self.shows("the owner", |state| taken(state) == json!(owner))
            .await;
    }

    /// Reads until these people, and no others, pay and wait for the seat.
    pub(crate) async fn shows_line(&mut self, seat: usize, paying: &[&str], waiting: &[&str]) {
        let is_line = |people: &Value, expected: &[&str]| match people {
            Value::Null => expected.is_empty(), // no person wants the seat
            people => *people == json!(expected),
        };
        let what = format!("a line of {waiting:?} behind {paying:?}");
        self.shows(&what, |state| {
            let taken = &state["taken"][seat.to_string()];
            is_line(&taken["paying"], paying) && is_line(&taken["waiting"], waiting)
        })
        .await;
    }
}
