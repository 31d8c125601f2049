//! Processor checks: clock, frequency.

use super::Finding;
use super::machine::ExaminedMachine;

/// Checks that the clock is read without a system call.
pub(super) fn clock(machine: &ExaminedMachine) -> Vec<Finding> {
    let folder = "sys/devices/system/clocksource/clocksource0";
    let Some(source) = machine.text(&format!("{folder}/current_clocksource")) else {
        return Vec::new();
    };
    let is_slow = ["hpet", "acpi_pm", "jiffies", "pit"].contains(&source.as_str());
    let available = machine.text(&format!("{folder}/available_clocksource")).unwrap_or_default();
    let better = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page"];
    let better = better.iter().find(|name| available.split_whitespace().any(|one| one == **name));
    vec![match (is_slow, better) {
        (false, _) => Finding::ok("clock", source),
        (true, Some(better)) => Finding::advice(
            "clock",
            format!("{source}: each reading takes a system call and a slow device"),
            format!("echo {better} | sudo tee /{folder}/current_clocksource"),
        ),
        (true, None) => Finding::advice(
            "clock",
            format!("{source}, and this kernel trusts no faster one"),
            "the kernel's log says why (sudo dmesg | grep -i -e tsc -e clocksource); with a stable one: tsc=reliable",
        ),
    }]
}

/// Checks that cores stay fast.
pub(super) fn frequency(machine: &ExaminedMachine) -> Vec<Finding> {
    let cores = machine.entries("sys/devices/system/cpu");
    let governors = cores.iter().filter_map(|core| {
        machine.text(&format!("sys/devices/system/cpu/{core}/cpufreq/scaling_governor"))
    });
    let mut governors: Vec<String> = governors.collect();
    governors.sort();
    governors.dedup();
    let slow = ["powersave", "conservative"];
    vec![match &governors[..] {
        [] => Finding::ok("frequency", "not set here"),
        [..] if governors.iter().any(|one| slow.contains(&one.as_str())) => Finding::advice(
            "frequency",
            format!(
                "{}: cores become fast late, requests that are alone wait for them",
                governors.join(", ")
            ),
            "sudo cpupower frequency-set -g performance (or schedutil, to save power)",
        ),
        [..] => Finding::ok("frequency", governors.join(", ")),
    }]
}
