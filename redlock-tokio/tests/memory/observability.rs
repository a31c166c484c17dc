//! The metrics, and what uses them: the page, the dashboard and the alerts. None of these may name a metric, a label or a
//! value that the code does not write.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    mem,
};

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use promql_parser::{
    parser::{self, Expr},
    util::{ExprVisitor, walk_expr},
};
use redlock_tokio::{LockOptions, MetricsObserver};
use redlock_tower::LockLayer;
use serde_json::Value;
use tokio::time::sleep;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{
    MS, built,
    in_memory::{over, paused_runtime, set_down, three_nodes},
};

const PAGE: &str = include_str!("../../METRICS.md");
const DASHBOARD: &str = include_str!("../../observability/dashboard.json");
const ALERTS: &str = include_str!("../../observability/alerts.yml");

/// The labels that Prometheus adds, and that of the buckets.
const ADDED: [&str; 3] = ["job", "instance", "le"];

/// A metric, as the exporter writes it.
#[derive(Debug, Default)]
struct Metric {
    kind: String,
    help: String,
    labels: BTreeSet<String>,
}

/// Reads a page for Prometheus.
fn read(page: &str) -> BTreeMap<String, Metric> {
    let mut metrics = BTreeMap::<String, Metric>::new();
    for line in page.lines().filter(|line| !line.is_empty()) {
        let words = line.strip_prefix("# ").map(|it| it.splitn(3, ' '));
        match words.map(Vec::from_iter).as_deref() {
            Some(["TYPE", name, kind]) => {
                metrics.entry((*name).into()).or_default().kind = (*kind).into();
            }
            Some(["HELP", name, help]) => {
                metrics.entry((*name).into()).or_default().help = (*help).into();
            }
            Some(other) => panic!("{other:?}"),
            None => {
                let Expr::VectorSelector(sample) = parse(line.rsplit_once(' ').unwrap().0) else {
                    panic!("{line}");
                };
                let name = sample.name.unwrap();
                let metric = metrics
                    .get_mut(base(&name))
                    .expect("its type comes before it");
                let labels = sample.matchers.matchers.into_iter().map(|it| it.name);
                metric.labels.extend(labels.filter(|it| it != "le"));
            }
        }
    }
    metrics
}

/// Returns the name of the metric that has this series.
fn base(series: &str) -> &str {
    let ends = ["_bucket", "_sum", "_count"].into_iter();
    let mut bases = ends.filter_map(|end| series.strip_suffix(end));
    bases.next().unwrap_or(series)
}

fn parse(expression: &str) -> Expr {
    parser::parse(expression).unwrap_or_else(|error| panic!("{expression}: {error}"))
}

/// Has everything counted that can be counted.
async fn count_all() {
    let nodes = three_nodes();
    let builder = over(&nodes).ttl(MS(2000));
    let redlock = built(builder.observer(MetricsObserver::new())).await;
    let label = LockOptions::new().label("secret-free");
    let guard = redlock.lock("secret").options(label).await.unwrap();
    assert!(redlock.try_lock("secret").await.is_err());
    guard.extend().await.unwrap();
    let writer = redlock.rw_lock("shared").write().await.unwrap();
    writer.downgrade().await.unwrap();
    drop(writer);
    // A node misses a release, and then a majority is gone for longer than the ttl.
    nodes[0].set_down(true);
    drop(guard);
    let guard = redlock.lock("secret").await.unwrap();
    set_down(&nodes, true);
    sleep(MS(1000)).await;
    assert!(guard.extend().await.is_err());
    sleep(MS(4000)).await;
    assert!(!guard.is_valid());
    let layer = LockLayer::new(redlock.clone(), |_: &()| "secret");
    let service = layer
        .wait(MS(100))
        .fail_open(true)
        .layer(service_fn(async |()| Ok::<_, Infallible>(())));
    service.oneshot(()).await.unwrap();
    set_down(&nodes, false);
    sleep(MS(2000)).await;
}

/// Returns what the code writes, as Prometheus reads it.
fn emitted() -> (String, BTreeMap<String, Metric>) {
    let builder = PrometheusBuilder::new();
    let builder = builder.set_buckets_for_metric(Matcher::Prefix("redlock_".into()), &[1.0]);
    let recorder = builder.unwrap().build_recorder();
    // All tasks run on this thread.
    metrics::with_local_recorder(&recorder, || paused_runtime().block_on(count_all()));
    let page = recorder.handle().render();
    let metrics = read(&page);
    (page, metrics)
}

/// Returns the rows of the page's tables of metrics: the name, the type and the labels.
fn rows() -> Vec<(String, String, BTreeSet<String>)> {
    let rows = PAGE.lines().filter(|line| line.starts_with("| `redlock_"));
    let rows = rows.map(|line| {
        let cells: Vec<_> = line.split(" | ").collect();
        let labels = cells[2].split(", ");
        let labels = labels.map(|it| it.trim_matches('`').to_owned());
        let name = cells[0].trim_start_matches("| ").trim_matches('`');
        (name.to_owned(), cells[1].to_owned(), labels.collect())
    });
    rows.collect()
}

#[test]
fn a_writer_that_was_downgraded_counts_as_a_reader() {
    let (page, _) = emitted();
    for line in [
        r#"redlock_held_locks{label="default",share="writer"} 0"#,
        r#"redlock_held_locks{label="default",share="reader"} 0"#,
        r#"redlock_hold_seconds_count{label="default",share="writer"} 1"#,
        r#"redlock_hold_seconds_count{label="default",share="reader"} 1"#,
    ] {
        assert!(page.lines().any(|it| it == line), "no {line} in\n{page}");
    }
}

#[test]
fn each_metric_is_described_written_and_explained() {
    let (page, metrics) = emitted();
    assert!(!page.contains("\"secret\""), "a key: {page}");
    for (name, metric) in &metrics {
        assert!(!metric.help.is_empty(), "{name} is not described");
        assert!(!metric.labels.is_empty(), "{name} is not written");
    }
    let written = metrics.into_iter();
    let written = written.map(|(name, metric)| (name, metric.kind, metric.labels));
    let mut explained = rows();
    explained.sort();
    assert_eq!(written.collect::<Vec<_>>(), explained);
}

/// The metrics that are written, those that some expressions show, and what is wrong with the last expression.
struct Check {
    metrics: BTreeMap<String, Metric>,
    shown: BTreeSet<String>,
    faults: Vec<String>,
}

impl Check {
    fn new() -> Self {
        Self {
            metrics: emitted().1,
            shown: BTreeSet::new(),
            faults: Vec::new(),
        }
    }

    fn faults(&mut self, expression: &str) -> Vec<String> {
        let expression = parse(&expression.replace("$__rate_interval", "5m"));
        let Ok(_) = walk_expr(self, &expression);
        mem::take(&mut self.faults)
    }
}

impl ExprVisitor for Check {
    type Error = Infallible;

    fn pre_visit(&mut self, expression: &Expr) -> Result<bool, Infallible> {
        let selector = match expression {
            Expr::VectorSelector(it) => it,
            Expr::MatrixSelector(it) => &it.vs,
            _ => return Ok(true),
        };
        let name = selector.name.as_deref().unwrap_or_default();
        self.shown.insert(base(name).to_owned());
        let Some(metric) = self.metrics.get(base(name)) else {
            self.faults.push(format!("there is no metric {name}"));
            return Ok(true);
        };
        if (base(name) != name) != (metric.kind == "histogram") {
            self.faults.push(format!("there is no series {name}"));
        }
        for label in selector.matchers.matchers.iter().map(|it| &it.name) {
            if !ADDED.contains(&&**label) && !metric.labels.contains(label) {
                self.faults.push(format!("{name} has no label {label}"));
            }
        }
        Ok(true)
    }
}

#[test]
fn the_dashboard_shows_what_is_written() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let mut check = Check::new();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    for target in panels.flat_map(|it| it["targets"].as_array().into_iter().flatten()) {
        let expression = target["expr"].as_str().unwrap();
        assert_eq!(check.faults(expression), [""; 0], "{expression}");
    }
    let is_missing = |it: &&String| !check.shown.contains(*it);
    let missing: Vec<_> = check.metrics.keys().filter(is_missing).collect();
    assert!(missing.is_empty(), "no panel shows {missing:?}");
}

#[test]
fn the_alerts_watch_what_is_written_and_are_explained() {
    let rules: Value = serde_yaml_ng::from_str(ALERTS).unwrap();
    let mut check = Check::new();
    for rule in rules["groups"][0]["rules"].as_array().unwrap() {
        let name = rule["alert"].as_str().unwrap();
        let expression = rule["expr"].as_str().unwrap();
        assert_eq!(check.faults(expression), [""; 0], "{name}");
        let urgency = match rule["labels"]["severity"].as_str().unwrap() {
            "page" => "now",
            "ticket" => "soon",
            other => panic!("{name}: {other}"),
        };
        let row = format!("| `{name}` | {urgency} |");
        assert!(PAGE.contains(&row), "METRICS.md lacks {row}");
    }
}

#[test]
fn what_is_not_written_is_found() {
    let mut check = Check::new();
    for (expression, fault) in [
        ("rate(redlock_request_total[5m])", "no metric"),
        ("redlock_wait_seconds > 1", "no series"),
        ("1 + sum(redlock_held_locks{key=\"a\"})", "no label"),
    ] {
        let faults = check.faults(expression);
        assert!(faults[0].contains(fault), "{faults:?}");
    }
}
