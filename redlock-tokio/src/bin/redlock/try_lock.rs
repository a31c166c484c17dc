use std::time::Duration;

use redlock_tokio::LockOptions;
use serde_json::json;

use crate::{
    args::{Connection, TryArgs},
    exit::{Exit, Failure},
    inspect,
    output::{Color, Output},
    run::SHUTDOWN,
};

pub(crate) async fn run(
    nodes: &Connection,
    args: TryArgs,
    output: &Output,
) -> Result<Exit, Failure> {
    let redlock = nodes.connect(nodes.ttl(args.ttl)).await?;
    let lock = args.lock.lock(&redlock, &args.key);
    let guard = match lock.options(LockOptions::new().wait(Duration::ZERO)).await {
        Ok(guard) => guard,
        Err(error) => return Err(inspect::failure(&redlock, &args.key, error).await),
    };
    let (token, fence) = (guard.token().to_string(), guard.fencing_token());
    let fence = fence.map(|it| it.get());
    let acquisition = guard.acquisition();
    match args.keep {
        Some(time) => guard
            .release_after(time)
            .await
            .map_err(|error| Failure::new(Exit::Unavailable, error))?,
        None => _ = guard.release().await,
    }
    let state = match args.keep {
        Some(time) => format!("taken for {time:?}"),
        None => "free".to_owned(),
    };
    let text = format!("{}: {acquisition}", output.paint(Color::Green, &state));
    output.line(text, || {
        json!({
            "key": args.key.display().to_string(),
            "token": token,
            "fence": fence,
            "waited_seconds": acquisition.waited().as_secs_f64(),
            "kept_seconds": args.keep.map(|it| it.as_secs_f64()),
        })
    });
    redlock.shutdown_within(SHUTDOWN).await;
    Ok(Exit::Ok)
}
