use std::{error::Error, path::Path};

use plotters::{
    coord::{CoordTranslate, Shift},
    prelude::*,
};

use crate::{
    Result,
    sections::{FAULTS, Figures, OwnKeys, Sickness, TASKS},
    shared::{
        contestants::{Contestant, Ours, Rslock},
        machine::Machine,
    },
};

const SIZE: (u32, u32) = (1180, 520);
const FONT: &str = "sans-serif";

/// Distinguishable for the colour-blind (Okabe and Ito), ours the strongest.
const COLOURS: [RGBColor; 6] = [
    RGBColor(130, 130, 130),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(204, 121, 167),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
];

/// Draws the main figures: how much a lock does while all is well, and how fast it is when it is not.
pub(crate) fn draw(machine: &Machine, figures: &Figures, path: &Path) -> Result<()> {
    let (Some(own_keys), Some(sickness)) = (&figures.own_keys, &figures.sickness) else {
        return Err("a plot wants the sections own-keys and sickness".into());
    };
    // Errors of the drawing library are neither `Send` nor `Sync`.
    paint(machine, own_keys, sickness, path).map_err(|error| error.to_string().into())
}

fn paint(
    machine: &Machine,
    own_keys: &OwnKeys,
    sickness: &Sickness,
    path: &Path,
) -> Result<(), Box<dyn Error>> {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let caption = format!(
        "redlock-tokio at {}: {} cores, five Redis {} on loopback",
        machine.commit, machine.cores, machine.redis
    );
    let root = root.titled(&caption, (FONT, 17))?;
    let (left, right) = root.split_horizontally(620);
    cycles(&left, own_keys)?;
    latencies(&right, sickness)?;
    root.present()?;
    Ok(())
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn cycles(area: &Area<'_>, own_keys: &OwnKeys) -> Result<(), Box<dyn Error>> {
    let mut chart = frame(area, "Cycles (acquire and release) per second, by tasks")
        .build_cartesian_2d(
            (0.85f64..320.0)
                .log_scale()
                .with_key_points(TASKS.map(|it| it as f64).to_vec()),
            (1e3f64..200e3)
                .log_scale()
                .with_key_points(vec![1e3, 2e3, 5e3, 10e3, 20e3, 50e3, 100e3, 200e3]),
        )?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc("tasks, each with a key of its own")
        .x_label_formatter(&|tasks| format!("{tasks:.0}"))
        .y_label_formatter(&|rate| format!("{:.0} k", rate / 1e3))
        .label_style((FONT, 13))
        .draw()?;
    for (name, colour) in own_keys.contestants().into_iter().zip(COLOURS) {
        let width = if name == Ours::NAME { 3 } else { 2 };
        let style = colour.stroke_width(width);
        let points = TASKS.map(|tasks| (tasks as f64, own_keys.cycles(name, tasks)));
        chart
            .draw_series(LineSeries::new(points, style).point_size(4))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    legend(&mut chart)
}

fn latencies(area: &Area<'_>, sickness: &Sickness) -> Result<(), Box<dyn Error>> {
    let mut chart = frame(area, "Acquire: median (full) and 99th percentile (hollow)")
        .build_cartesian_2d(0.0..FAULTS.len() as f64, (50f64..3e6).log_scale())?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc("of five nodes")
        // One label in the middle of each, none in between.
        .x_labels(2 * FAULTS.len() + 1)
        .x_label_formatter(&|x| {
            let fault = FAULTS.get(x.floor() as usize);
            let fault = fault.filter(|_| x.fract() > 0.25);
            fault.map_or_else(String::new, |it| it.name.to_owned())
        })
        .y_label_formatter(&|us| match us {
            us if *us < 1e3 => format!("{us:.0} us"),
            us if *us < 1e6 => format!("{:.0} ms", us / 1e3),
            us => format!("{:.0} s", us / 1e6),
        })
        .label_style((FONT, 13))
        .draw()?;
    // The same colours as on the left.
    for (name, colour, shift) in [
        (Rslock::NAME, COLOURS[2], -0.12),
        (Ours::NAME, COLOURS[5], 0.12),
    ] {
        let points: Vec<_> = FAULTS
            .into_iter()
            .enumerate()
            .filter_map(|(index, fault)| {
                let times = sickness.acquire(name, fault)?;
                Some((index as f64 + 0.5 + shift, times.p50_us, times.p99_us))
            })
            .collect();
        let line = colour.stroke_width(2);
        chart.draw_series(
            points
                .iter()
                .map(|&(x, p50, p99)| PathElement::new([(x, p50), (x, p99)], line)),
        )?;
        chart
            .draw_series(points.iter().flat_map(|&(x, p50, p99)| {
                [
                    Circle::new((x, p99), 5, WHITE.filled()),
                    Circle::new((x, p99), 5, line),
                    Circle::new((x, p50), 5, colour.filled()),
                ]
            }))?
            .label(name)
            .legend(move |(x, y)| Circle::new((x + 9, y), 5, colour.filled()));
    }
    legend(&mut chart)
}

/// What each drawing has around it.
fn frame<'a, 'b>(area: &'a Area<'b>, caption: &str) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut chart = ChartBuilder::on(area);
    chart
        .caption(caption, (FONT, 15))
        .margin(12)
        .x_label_area_size(38)
        .y_label_area_size(58);
    chart
}

/// Says which line is whose.
fn legend<'a, C: CoordTranslate>(
    chart: &mut ChartContext<'a, SVGBackend<'a>, C>,
) -> Result<(), Box<dyn Error>> {
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.2))
        .label_font((FONT, 13))
        .draw()?;
    Ok(())
}
