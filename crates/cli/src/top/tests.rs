use super::app::{RateColumn, TopState};
use super::dashboard::{Dashboard, DashboardView};
use super::rates::between;
use super::{picture, text, view};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Color, Modifier};
use roadtrain_reactor::metrics::{
    Batching, HostSample, IoCounters, LaneSample, Latency, MetricsSnapshot, NamespaceSample,
    ReactorSample,
};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const NQN: &str = "nqn.2025-01.io.example:disk";

/// Returns the counters of `n` seconds of `iops` reads of 4 KiB, half of them in 4 us, half in up to 64 us.
fn io(n: u64, iops: u64) -> IoCounters {
    let reads = n * iops;
    IoCounters {
        reads,
        read_bytes: reads * 4096,
        in_flight: 32,
        read_latency: Latency { buckets: vec![reads / 2, 0, 0, 0, reads / 2], sum_seconds: 1.0 },
        ..IoCounters::default()
    }
}

fn batching(n: u64, iops: u64) -> Batching {
    Batching {
        requests: n * iops,
        caravans: n * iops / 16,
        caravan_requests: n * iops,
        sends: n * iops / 8,
        receives: n * iops / 16,
        doorbells_drained: n * iops / 16,
        ..Batching::default()
    }
}

/// Returns the snapshot of a target after `n` seconds: two namespaces, two hosts, three lanes.
fn snapshot(n: u64) -> MetricsSnapshot {
    let lane = |(cntlid, qid, iops): (u16, u16, u64)| LaneSample {
        nqn: NQN.into(),
        host_nqn: format!("nqn.2025-01.io.example:host{cntlid}"),
        peer: format!("192.0.2.{cntlid}:5000"),
        transport: "tcp".into(),
        cntlid,
        qid,
        io: io(n, iops),
        batching: batching(n, iops),
        ..LaneSample::default()
    };
    let namespace = |(nsid, iops): (u32, u64)| NamespaceSample {
        nqn: NQN.into(),
        nsid,
        device: format!("mem{nsid}"),
        product: "memory".into(),
        capacity_bytes: 1 << 30,
        io: io(n, iops),
        ..NamespaceSample::default()
    };
    let host = |(number, iops): (u16, u64)| HostSample {
        nqn: NQN.into(),
        host_nqn: format!("nqn.2025-01.io.example:host{number}"),
        address: Some(format!("192.0.2.{number}")),
        io_queues: 2,
        io: io(n, iops),
        ..HostSample::default()
    };
    MetricsSnapshot {
        id: "target0".into(),
        version: "1.0".into(),
        unix_seconds: 1e9 + n as f64,
        uptime_seconds: 100.0 + n as f64,
        state: "serving".into(),
        namespaces: [(1, 60_000), (2, 4_000)].map(namespace).into(),
        hosts: [(1, 48_000), (2, 16_000)].map(host).into(),
        lanes: [(1, 1, 32_000), (1, 2, 16_000), (2, 1, 16_000)].map(lane).into(),
        reactors: vec![ReactorSample {
            busy_seconds: n as f64 * 0.5,
            spin_seconds: n as f64 * 0.25,
            idle_seconds: n as f64 * 0.25,
            batching: batching(n, 64_000),
            core: Some(1),
            ..ReactorSample::default()
        }],
        ..MetricsSnapshot::default()
    }
}

fn dashboard(seconds: u64) -> Dashboard {
    let mut dashboard = Dashboard::default();
    for n in 0..=seconds {
        dashboard.put(vec![between("target0", &snapshot(n.saturating_sub(1)), &snapshot(n))]);
    }
    dashboard
}

/// The busiest of many namespaces are shown, and the others are counted.
#[test]
fn the_busiest_namespaces_are_kept() {
    let many = |n: u64| {
        let one = |nsid: u32| NamespaceSample {
            nqn: NQN.into(),
            nsid,
            io: io(n, u64::from(nsid % 100) * 10),
            ..NamespaceSample::default()
        };
        MetricsSnapshot { namespaces: (1..=10_000).map(one).collect(), ..snapshot(n) }
    };
    let mut rates = between("target0", &many(1), &many(2));
    let total = rates.total.iops;
    rates.keep_busiest(150);
    let nsids = rates.namespaces.iter().map(|one| one.nsid);
    assert!(nsids.clone().take(4).eq([98, 99, 198, 199]), "{:?}", nsids.collect::<Vec<_>>());
    assert_eq!((rates.namespaces.len(), rates.namespaces_left_out), (150, 9_850));
    assert_eq!(rates.total.iops, total, "the sum is of all");
    let mut dashboard = Dashboard::default();
    dashboard.put(vec![rates]);
    assert_eq!(dashboard.count(DashboardView::Namespaces), (150, 9_850));
    assert!(text::all(&dashboard).contains("the 150 busiest, 9850 more"));
    let app = TopState::new(SECOND, false);
    assert!(shown(&app, &dashboard).contains("2 Namespaces 150 of 10000"));
    let mut few = between("target0", &snapshot(1), &snapshot(2));
    few.keep_busiest(2);
    assert_eq!((few.namespaces.len(), few.namespaces_left_out), (2, 0));
}

fn screen(app: &TopState, dashboard: &Dashboard, (width, height): (u16, u16)) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view::draw(frame, app, dashboard)).unwrap();
    terminal.backend().buffer().clone()
}

fn lines(buffer: &Buffer) -> Vec<String> {
    let area = buffer.area;
    let line = |y| {
        let cells = (0..area.width).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_owned()
    };
    (0..area.height).map(line).collect()
}

fn shown(app: &TopState, dashboard: &Dashboard) -> String {
    lines(&screen(app, dashboard, (80, 24))).join("\n")
}

fn press(app: &mut TopState, dashboard: &Dashboard, keys: &[KeyCode]) {
    keys.iter().for_each(|key| app.press(KeyEvent::new(*key, KeyModifiers::NONE), dashboard));
}

#[test]
fn rates_are_those_between_two_snapshots() {
    let process = between("t", &snapshot(10), &snapshot(12));
    assert_eq!((process.seconds, process.total.iops), (2.0, 64_000.0));
    assert_eq!(process.total.bytes_per_second, 64_000.0 * 4096.0);
    assert_eq!(process.total.requests_per_caravan, Some(16.0));
    assert_eq!((process.total.p50_us, process.total.in_flight), (Some(4.0), 64));
    let p99 = process.total.p99_us.unwrap();
    assert!((32.0..=64.0).contains(&p99), "{p99}");
    assert_eq!(process.hosts[0].rates.requests_per_caravan, Some(16.0));
    assert_eq!(process.lanes[0].sends_per_second, 4000.0);
    assert_eq!((process.reactors[0].busy, process.reactors[0].idle), (0.5, 0.25));
    // The process was restarted: earlier counters do not apply.
    let new = MetricsSnapshot { uptime_seconds: 4.0, ..snapshot(2) };
    let process = between("t", &snapshot(50), &new);
    assert_eq!((process.seconds, process.total.iops), (4.0, 32_000.0));
}

#[test]
fn a_small_terminal_shows_the_most_important() {
    let (app, dashboard) = (TopState::new(SECOND, false), dashboard(5));
    let text = shown(&app, &dashboard);
    for part in [
        "roadtrain top",
        "target0 serving up 105 s",
        "every 1.00 s",
        "IOPS 64.0k",
        "bandwidth 250 MiB/s",
        "full bar 64.0k",
        "[1 Processes 1]",
        "2 Namespaces 2",
        "IOPS▼",
        "> target0 target serving",
        "64.0k",
        "4.00 us",
        "err/s",
        "Tab view",
        "q quit",
    ] {
        assert!(text.contains(part), "{part:?} is not on\n{text}");
    }
    // Complete figures, though fewer.
    let narrow = lines(&screen(&app, &dashboard, (40, 24))).join("\n");
    for part in ["IOPS▼", "bytes/s", "64.0k", "250 MiB/s"] {
        assert!(narrow.contains(part), "{part:?} is not on\n{narrow}");
    }
    assert!(!narrow.contains("req/c"), "{narrow}");
    let least = screen(&app, &dashboard, (40, 8)); // it does not fail in a smaller one
    assert!(lines(&least)[0].contains("roadtrain top"));
    screen(&app, &dashboard, (1, 1));
}

#[test]
fn keys_choose_what_is_shown() {
    let (mut app, dashboard) = (TopState::new(SECOND, true), dashboard(3));
    press(&mut app, &dashboard, &[KeyCode::Char('2')]);
    assert!(shown(&app, &dashboard).contains("> ns 1 disk mem1"));
    press(&mut app, &dashboard, &[KeyCode::Tab, KeyCode::Down]);
    assert!(shown(&app, &dashboard).contains("> host2 192.0.2.2"));
    press(&mut app, &dashboard, &[KeyCode::Char('4'), KeyCode::End]);
    assert_eq!((app.view, app.selected_of(&app.rows(&dashboard))), (DashboardView::Lanes, Some(2)));
    press(&mut app, &dashboard, &[KeyCode::Enter]);
    let open = shown(&app, &dashboard);
    for part in [
        "2.1 host2 192.0.2.2:5000",
        "queue      1 of controller 2",
        "sends/s, 0.12 for each",
        "Esc back",
    ] {
        assert!(open.contains(part), "{part:?} is not on\n{open}");
    }
    press(&mut app, &dashboard, &[KeyCode::Esc]);
    assert!(shown(&app, &dashboard).contains("[4 Lanes 3]"));
    press(&mut app, &dashboard, &[KeyCode::Char('1'), KeyCode::Enter]);
    let open = shown(&app, &dashboard);
    assert!(open.contains("reactor 0  ████████████▒▒▒▒▒▒······  busy  50 %"), "{open}");
    press(&mut app, &dashboard, &[KeyCode::Char('?')]);
    assert!(shown(&app, &dashboard).contains("Ctrl-C"));
    press(&mut app, &dashboard, &[KeyCode::Char('x'), KeyCode::Char('p')]);
    assert!(shown(&app, &dashboard).contains("PAUSED"));
    press(&mut app, &dashboard, &[KeyCode::Char('+'), KeyCode::Char('+'), KeyCode::Char('-')]);
    assert_eq!(app.interval, Duration::from_secs(2));
    assert!(!app.has_ended);
    press(&mut app, &dashboard, &[KeyCode::Char('q')]);
    assert!(app.has_ended);
    let mut app = TopState::new(SECOND, true);
    app.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL), &dashboard);
    assert!(app.has_ended);
}

#[test]
fn rows_are_sorted_and_the_selected_one_stays_selected() {
    let (mut app, dashboard) = (TopState::new(SECOND, true), dashboard(3));
    app.view = DashboardView::Lanes;
    let order = |app: &TopState| -> Vec<f64> {
        app.rows(&dashboard).iter().map(|row| row.rates.iops).collect()
    };
    assert_eq!(order(&app), [32_000.0, 16_000.0, 16_000.0]);
    press(&mut app, &dashboard, &[KeyCode::Home]);
    let selected = |app: &TopState| {
        let rows = app.rows(&dashboard);
        rows[app.selected_of(&rows).unwrap()].key.name.clone()
    };
    let first = selected(&app);
    press(&mut app, &dashboard, &[KeyCode::Char('r')]);
    assert_eq!(order(&app), [16_000.0, 16_000.0, 32_000.0]);
    assert_eq!(selected(&app), first, "though it is the last one now");
    press(&mut app, &dashboard, &[KeyCode::Char('s')]);
    assert_eq!(app.sort, RateColumn::Bandwidth);
    assert!(shown(&app, &dashboard).contains("bytes/s▲"));
}

#[test]
fn without_colours_nothing_is_lost() {
    let dashboard = dashboard(3);
    let plain = screen(&TopState::new(SECOND, false), &dashboard, (100, 24));
    let coloured = screen(&TopState::new(SECOND, true), &dashboard, (100, 24));
    assert_eq!(lines(&plain), lines(&coloured));
    let has_color = |buffer: &Buffer| buffer.content.iter().any(|cell| cell.fg != Color::Reset);
    assert!(!has_color(&plain) && has_color(&coloured));
    let selected = lines(&plain).iter().position(|line| line.contains("> ")).unwrap();
    for screen in [&plain, &coloured] {
        let is_reversed = |x| screen[(x, selected as u16)].modifier.contains(Modifier::REVERSED);
        assert!(is_reversed(5) && is_reversed(80), "the selected row");
        assert!((83..99).all(|x| !is_reversed(x)), "its bars are read as the others");
    }
}

#[test]
fn an_unresponsive_process_is_shown() {
    let (app, mut dashboard) = (TopState::new(SECOND, true), dashboard(1));
    dashboard.put(Vec::new());
    dashboard.silent.push("target0: its process does not answer".into());
    let text = shown(&app, &dashboard);
    assert!(text.contains("! target0: its process does not answer"), "{text}");
    assert!(text.contains("nothing here yet"));
}

#[test]
fn once_is_the_same_as_text() {
    let text = text::all(&dashboard(2));
    let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap_or_default();
    assert!(line("target0: target").contains("serving"), "{text}");
    assert!(line("ns 2 disk").contains("4.0k"), "{text}");
    assert!(line("1.1 host1").contains("16.0"), "{text}");
}

#[test]
fn a_picture_has_the_text_of_its_screen() {
    let svg = picture::svg(&screen(&TopState::new(SECOND, true), &dashboard(9), (100, 24)));
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    for part in ["roadtrain top", "target0", "&gt; "] {
        assert!(svg.contains(part), "{part}");
    }
    assert!(svg.matches("<rect").count() > 50, "bars");
}
