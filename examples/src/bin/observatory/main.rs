//! A page on which one sees how the lock works: nodes that can be stopped, clients that want a key, and a time line of
//! who held it.
//!
//! ```sh
//! # Everything is embedded; then open http://localhost:3000.
//! cargo run -p redlock-examples --features observatory --bin observatory
//!
//! # Real nodes, which it only looks at:
//! REDLOCK_NODES=redis://a,redis://b,redis://c \
//!     cargo run -p redlock-examples --features observatory --bin observatory -- --key order:42
//! ```
//!
//! The modules, from the outside in: [`routes`] has the page and its buttons, [`snapshot`] what the page shows. [`stage`]
//! has the nodes and the clients: [`node`] is a node that can be hung or restarted, [`client`] asks for a lock again and
//! again. [`onlooker`] looks at real nodes. [`journal`] has what happened, and [`sections`] counts how many clients are at
//! work under one key.

mod client;
mod journal;
mod name;
mod node;
mod onlooker;
mod refusal;
mod routes;
mod sections;
mod snapshot;
mod stage;

use std::{env, sync::Arc};

use anyhow::Result;
use clap::Parser;
use futures::FutureExt;

use crate::{name::Name, onlooker::Onlooker, routes::Observatory, stage::Stage};

/// Shows how the lock works.
#[derive(Debug, Parser)]
struct Options {
    /// The port to listen on; 0 for any that is free.
    #[arg(long, default_value_t = 3000)]
    port: u16,
    /// The keys to look at on real nodes, with commas between them. More can be added on the page.
    #[arg(long, value_delimiter = ',', default_value = "order:42")]
    key: Vec<Name>,
    /// Lets embedded nodes vote at once after a restart, which gives locks away a second time.
    #[arg(long)]
    trust_fresh_nodes: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let is_real = env::var_os("REDLOCK_NODES").is_some();
    // Each embedded client would warn of each act of a user, which the page shows once.
    if is_real || env::var_os("RUST_LOG").is_some() {
        redlock_examples::init_logging();
    }
    let observatory = if is_real {
        let (redlock, nodes) = redlock_examples::connect().await?;
        println!("looking at {nodes}");
        Observatory::Real(Onlooker::start(redlock, options.key))
    } else {
        println!("5 embedded nodes; set REDLOCK_NODES=redis://..,redis://.. to look at real ones");
        Observatory::Staged(Stage::start(options.trust_fresh_nodes).await?)
    };
    let stop = redlock_examples::asked_to_stop()?.boxed().shared();
    let listener = redlock_examples::listen(options.port).await?;
    let router = routes::router(Arc::new(observatory), stop.clone());
    axum::serve(listener, router)
        .with_graceful_shutdown(stop)
        .await?;
    Ok(())
}
