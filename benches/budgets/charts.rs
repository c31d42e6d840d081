//! Charts as SVG.

use std::path::Path;

use plotters::prelude::*;

const SIZE: (u32, u32) = (820, 380);
const COLOURS: [RGBColor; 7] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 39, 40),
    RGBColor(255, 153, 51),
    RGBColor(148, 103, 189),
    RGBColor(44, 140, 60),
    RGBColor(110, 110, 110),
    RGBColor(190, 190, 190),
];

/// One colour of a chart: its name and its values.
pub struct Series<'a> {
    pub name: &'a str,
    pub values: Vec<Option<f64>>,
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Bars in groups, each with its value above it.
pub fn bars(
    path: &Path,
    title: &str,
    groups: &[&str],
    series: &[Series<'_>],
    digits: usize,
) -> Drawn {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let highest = highest_of(series);
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 17))
        .margin(12)
        .x_label_area_size(28)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..groups.len() as f64, 0.0..highest * 1.25)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .x_labels(0)
        .y_label_style(("sans-serif", 12))
        .y_label_formatter(&|value| figure(*value, digits))
        .draw()?;
    let width = 0.84 / series.len() as f64;
    for (index, (one, colour)) in series.iter().zip(COLOURS).enumerate() {
        let left_of = |group: usize| group as f64 + 0.08 + width * index as f64;
        let present = || {
            let values = one.values.iter().enumerate();
            values.filter_map(|(group, value)| Some((left_of(group), (*value)?)))
        };
        let rectangles = present().map(|(left, value)| {
            Rectangle::new([(left, 0.0), (left + width * 0.92, value)], colour.filled())
        });
        chart
            .draw_series(rectangles)?
            .label(one.name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 10, y + 5)], colour.filled()));
        let style = ("sans-serif", 11).into_text_style(&root).pos(above());
        let figures = present().map(|(left, value)| {
            Text::new(
                figure(value, digits),
                (left + width * 0.46, value),
                style.clone(),
            )
        });
        chart.draw_series(figures)?;
    }
    let style = ("sans-serif", 13).into_text_style(&root).pos(below());
    let names = groups.iter().enumerate();
    let names = names.map(|(group, name)| {
        // Below the axis, by pixels: the plotted area ends there.
        EmptyElement::at((group as f64 + 0.5, 0.0))
            + Text::new((*name).to_owned(), (0, 8), style.clone())
    });
    let area = chart.plotting_area().clone();
    for name in names {
        area.draw(&name)?;
    }
    legend(&mut chart)?;
    root.present()?;
    Ok(())
}

fn highest_of(series: &[Series<'_>]) -> f64 {
    let values = series.iter().flat_map(|series| &series.values).flatten();
    values.fold(0.0_f64, |highest, &value| highest.max(value))
}

/// Lines over pool sizes, which stand at equal distances.
pub fn lines(path: &Path, title: &str, sizes: &[u64], series: &[Series<'_>]) -> Drawn {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let highest = highest_of(series);
    let (first, last) = (sizes[0] as f64, sizes[sizes.len() - 1] as f64);
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 17))
        .margin(12)
        .margin_right(40)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d((first..last).log_scale(), 0.0..highest * 1.7)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc("sessions in the pool")
        .x_labels(sizes.len())
        .label_style(("sans-serif", 12))
        .x_label_formatter(&|value| figure(*value, 0))
        .y_label_formatter(&|value| figure(*value, 0))
        .draw()?;
    for (one, colour) in series.iter().zip(COLOURS) {
        let points: Vec<_> = sizes
            .iter()
            .zip(&one.values)
            .filter_map(|(size, value)| Some((*size as f64, (*value)?)))
            .collect();
        chart
            .draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?
            .label(one.name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 1), (x + 12, y + 1)], colour.filled()));
        let dots = points
            .into_iter()
            .map(|point| Circle::new(point, 3, colour.filled()));
        chart.draw_series(dots)?;
    }
    legend(&mut chart)?;
    root.present()?;
    Ok(())
}

fn legend<'a, DB, CT>(chart: &mut ChartContext<'a, DB, CT>) -> Drawn
where
    DB: DrawingBackend + 'a,
    DB::ErrorType: 'static,
    CT: plotters::coord::CoordTranslate,
{
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.9))
        .label_font(("sans-serif", 12))
        .draw()?;
    Ok(())
}

fn above() -> plotters::style::text_anchor::Pos {
    use plotters::style::text_anchor::{HPos, Pos, VPos};
    Pos::new(HPos::Center, VPos::Bottom)
}

fn below() -> plotters::style::text_anchor::Pos {
    use plotters::style::text_anchor::{HPos, Pos, VPos};
    Pos::new(HPos::Center, VPos::Top)
}

/// A number with its thousands apart.
pub fn figure(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) => (whole, format!(".{fraction}")),
        None => (&*text, String::new()),
    };
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + &fraction
}
