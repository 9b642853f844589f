// SPDX-License-Identifier: GPL-2.0-only
use super::*;
use crate::outcome::tests::{outcome, sample};

fn page(outcomes: Vec<Outcome>) -> Page {
    let claim = Claim {
        id: "kato-11".into(),
        figure: "Kato et al., figure 11".into(),
        claim: "over 20 frames".into(),
        ours: "23 frames".into(),
        verdict: Verdict::Holds,
        why: None,
    };
    let experiment = Experiment {
        id: "kato-11".into(),
        title: "Six movies".into(),
        about: String::new(),
        outcomes,
        limit: None,
        claims: vec![claim],
        traces: vec![("g-edf".into(), "traces/kato-11-lab-g-edf.pftrace".into())],
    };
    Page { title: "Results".into(), experiments: vec![experiment], ..Page::default() }
}

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    let html = render(&page(vec![outcome("g-edf+fcbs"), outcome("eevdf")])).unwrap();
    // Names of XML vocabularies are addresses too, but nothing is loaded from them.
    let html = html.replace("http://www.w3.org/", "");
    for outside in ["http://", "https://", "<script", "<link", "@import", "url(", " src="] {
        assert!(!html.contains(outside), "{outside}");
    }
}

#[test]
fn every_policy_claim_and_platform_value_is_on_the_page() {
    let html = render(&page(vec![outcome("g-edf+fcbs"), outcome("eevdf")])).unwrap();
    for text in
        ["g-edf+fcbs", "eevdf", "over 20 frames", "23 frames", "✓ holds", "7.2.12", "movie-1"]
    {
        assert!(html.contains(text), "{text}");
    }
    // Two curves, and three quantities and the rates of both.
    assert_eq!(html.matches("<svg").count(), 6);
    assert_eq!(html.matches("<svg").count(), html.matches("</svg>").count());
}

#[test]
fn both_worlds_have_their_own_pictures() {
    let sim = Outcome::of(&sample("g-edf", World::Sim, 4));
    let html = render(&page(vec![outcome("g-edf"), sim])).unwrap();
    assert_eq!(html.matches("<svg").count(), 10);
    assert!(html.contains("In the simulator") && html.contains("On the real kernel"));
}

#[test]
fn short_runs_and_empty_pages_have_no_curves_but_are_pages() {
    let short = Outcome::of(&sample("g-edf", World::Sim, 1));
    let html = render(&page(vec![short])).unwrap();
    // Three quantities: of rates there are none without a whole second.
    assert_eq!(html.matches("<svg").count(), 3);
    assert!(render(&Page::default()).unwrap().contains("</html>"));
    let nothing = Outcome::of(&onbeat_model::run::Run {
        events: vec![],
        tasks: vec![],
        horizon_ns: 0,
        ..sample("g-edf", World::Sim, 1)
    });
    assert!(!render(&page(vec![nothing])).unwrap().contains("NaN"));
}

#[test]
fn where_periods_differ_each_task_comes_first_and_means_of_all_are_not_shown() {
    let mut run = sample("g-edf", World::Sim, 4);
    (run.tasks[1].entry, run.tasks[1].period) = (1, run.tasks[1].period * 2);
    let html = render(&page(vec![Outcome::of(&run)])).unwrap();
    let at = |text: &str| html.find(text).unwrap_or_else(|| panic!("no {text}"));
    assert!(at(">promise</th>") < at("<svg") && at(">pass</td>") < at("<svg"));
    assert_eq!(html.matches("<svg").count(), 3);
    assert!(!html.contains("tard. 99 %</th>") && !html.contains("preempt/job"));
    let alike = render(&page(vec![outcome("g-edf")])).unwrap();
    assert!(!alike.contains(">promise</th>") && alike.contains(">owed late</th>"));
}

#[test]
fn traces_are_linked_only_inside_the_folder() {
    let mut p = page(vec![outcome("g-edf")]);
    for bad in ["/etc/passwd", "../x", "javascript:alert(1)", "//host/x"] {
        p.experiments[0].traces.push(("bad".into(), bad.into()));
    }
    let html = render(&p).unwrap();
    assert!(html.contains("<a href=\"traces&#x2f;kato-11-lab-g-edf.pftrace\">g-edf</a>"), "{html}");
    assert_eq!(html.matches("<a href=").count(), 1);
}

#[test]
fn names_cannot_break_the_page() {
    let mut o = outcome("<script>alert(1)</script>&");
    o.tasks[0].name = "<b>".into();
    let mut p = page(vec![o]);
    p.experiments[0].id = "\"><script>".into();
    p.title = "</title><script>".into();
    let html = render(&p).unwrap();
    assert!(!html.contains("<script"), "{html}");
    assert!(!html.contains("<b>&"), "{html}");
}

#[test]
fn limits_are_lines_of_the_table_of_each_world() {
    use crate::limit::{Limits, Span};
    let sim = Outcome::of(&sample("g-edf", World::Sim, 4));
    let mut p = page(vec![outcome("g-edf"), sim]);
    let guaranteed = Some(Span { bound: 52, found: Some(52) });
    let (capacity, lag_ms) = (3.8, 1.0);
    let limit = Limits { jobs: 1000, capacity, lag_ms, guaranteed, free: guaranteed };
    p.experiments[0].limit = Some(limit);
    let html = render(&p).unwrap();
    for name in ["limit", "limit, no guarantee"] {
        assert_eq!(html.matches(&format!("<td>{name}</td>")).count(), 2, "{name}");
    }
    assert_eq!(html.matches("<td>5.20</td>").count(), 4);
}

#[test]
fn the_answer_comes_before_all_tables_and_pictures_and_names_who_broke_a_promise() {
    let mut bad = outcome("g-edf");
    bad.metrics.owed_late = 3;
    bad.tasks[1].owed_late = 3;
    let html = render(&page(vec![bad, outcome("g-edzl+cbs")])).unwrap();
    let at = |text: &str| html.find(text).unwrap_or_else(|| panic!("no {text}"));
    let answer = at("g-edzl+cbs keeps every promise and is best: 19 of 194 frames");
    assert!(answer < at("<table") && answer < at("<svg") && answer < at("over 20 frames"));
    assert!(
        at("Promises broken, of those owed: <span class=\"worst\">g-edf (3 of ") < at("<table")
    );
    // Tasks that are alike have a column each, before figures of all together.
    assert!(at("<td class=\"worst\">19 (3 owed)</td>") < at(">owed late</th>"));
    assert_eq!(html.matches("class=\"answer\"").count(), 1);
}

#[test]
fn several_experiments_have_their_answers_on_top() {
    let mut p = page(vec![outcome("g-edf")]);
    let other = Experiment { id: "other".into(), ..p.experiments[0].clone() };
    p.experiments.push(other);
    let html = render(&p).unwrap();
    let at = |text: &str| html.find(text).unwrap_or_else(|| panic!("no {text}"));
    assert!(at("href=\"#other\"") < at("<section id=\"kato-11\""));
    assert_eq!(html.matches("class=\"answer\"").count(), 4);
}

#[test]
fn jobs_are_called_frames_only_where_tasks_say_so() {
    let mut o = outcome("g-edf");
    assert!(render(&page(vec![o.clone()])).unwrap().contains("mean fps"));
    o.tasks.iter_mut().for_each(|task| task.name = task.name.replace("movie", "control"));
    let mut p = page(vec![o]);
    p.experiments[0].claims.clear();
    let html = render(&p).unwrap();
    assert!(!html.contains("fps") && !html.contains("rames") && html.contains("Jobs in each"));
}

#[test]
fn every_colour_has_another_on_a_dark_screen() {
    let html = render(&page(vec![outcome("g-edf+fcbs"), outcome("eevdf")])).unwrap();
    assert!(
        html.contains("prefers-color-scheme: dark") && html.contains("color-scheme: light dark")
    );
    for of in ["fill=\"#", "stroke=\"#"] {
        for (at, _) in html.match_indices(of) {
            let colour = &html[at + of.len() - 1..at + of.len() + 6];
            assert!(html.contains(&format!("=\"{colour}\"]")), "{colour} is the same on both");
        }
    }
}
