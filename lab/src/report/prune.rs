//! Leaves figures that no page quotes out of committed results.

use serde_json::Value;

/// A part of a run that goes.
#[derive(Clone, Debug)]
enum PruneCut {
    /// A run, of all runs.
    Run(usize),
    /// A field of a run becomes its default.
    Field(usize, &'static str),
    /// A figure of a run's median.
    OfMedian(usize, String),
    /// A figure of all of a run's rounds.
    OfRounds(usize, String),
}

/// `results` without what `is_same` does not miss.
pub(super) fn prune(mut results: Value, is_same: &dyn Fn(&Value) -> bool) -> Value {
    for list in [runs, fields, figures] {
        let cuts = list(&results);
        let mut kept = Vec::new();
        reduce(&results, &cuts, &mut kept, is_same);
        results = without(&results, &kept);
    }
    results
}

/// Finds cuts that change nothing, together with those that were found before: all at once, else in halves.
fn reduce(
    results: &Value,
    cuts: &[PruneCut],
    kept: &mut Vec<PruneCut>,
    is_same: &dyn Fn(&Value) -> bool,
) {
    let before = kept.len();
    kept.extend_from_slice(cuts);
    if cuts.is_empty() || is_same(&without(results, kept)) {
        return;
    }
    kept.truncate(before);
    if let [first @ .., _] = cuts
        && !first.is_empty()
    {
        let (left, right) = cuts.split_at(cuts.len() / 2);
        reduce(results, left, kept, is_same);
        reduce(results, right, kept, is_same);
    }
}

fn count(results: &Value) -> usize {
    results["runs"].as_array().map_or(0, Vec::len)
}

fn runs(results: &Value) -> Vec<PruneCut> {
    (0..count(results)).map(PruneCut::Run).collect()
}

fn fields(results: &Value) -> Vec<PruneCut> {
    let names = ["command", "rounds", "median"];
    names
        .iter()
        .flat_map(|name| (0..count(results)).map(|run| PruneCut::Field(run, name)))
        .collect()
}

/// Figure by figure over all runs, since runs of a kind are quoted alike.
fn figures(results: &Value) -> Vec<PruneCut> {
    let run = |run: usize| &results["runs"][run];
    let names = |measure: &Value| -> Vec<String> {
        measure.as_object().map(|figures| figures.keys().cloned().collect()).unwrap_or_default()
    };
    let of_medians = (0..count(results)).flat_map(|at| {
        names(&run(at)["median"]).into_iter().map(move |name| PruneCut::OfMedian(at, name))
    });
    let of_rounds = (0..count(results)).flat_map(|at| {
        let first =
            run(at)["rounds"].as_array().and_then(|rounds| rounds.iter().find(|r| r.is_object()));
        first
            .map(names)
            .unwrap_or_default()
            .into_iter()
            .map(move |name| PruneCut::OfRounds(at, name))
    });
    let mut all: Vec<PruneCut> = of_medians.chain(of_rounds).collect();
    all.sort_by_key(|cut| match cut {
        PruneCut::OfMedian(at, name) => (0, name.clone(), *at),
        PruneCut::OfRounds(at, name) => (1, name.clone(), *at),
        _ => (2, String::new(), 0),
    });
    all
}

fn without(results: &Value, cuts: &[PruneCut]) -> Value {
    let mut results = results.clone();
    let mut gone = Vec::new();
    for cut in cuts {
        match cut {
            PruneCut::Run(run) => gone.push(*run),
            PruneCut::Field(run, name) => drop(take(&mut results["runs"][*run], name)),
            PruneCut::OfMedian(run, name) => drop(take(&mut results["runs"][*run]["median"], name)),
            PruneCut::OfRounds(run, name) => {
                let rounds = results["runs"][*run]["rounds"].as_array_mut();
                rounds.into_iter().flatten().for_each(|round| drop(take(round, name)));
            }
        }
    }
    if let Some(runs) = results["runs"].as_array_mut() {
        let mut at = 0;
        runs.retain(|_| {
            at += 1;
            !gone.contains(&(at - 1))
        });
    }
    results
}

fn take(of: &mut Value, name: &str) -> Option<Value> {
    of.as_object_mut()?.remove(name)
}

#[cfg(test)]
mod tests {
    use super::prune;
    use serde_json::json;

    #[test]
    fn only_what_is_quoted_stays() {
        let run = |iops: u32| {
            json!({ "load": "x", "command": "long", "median": { "iops": iops, "p99": 1 },
                    "rounds": [{ "iops": iops, "p99": 2 }, null] })
        };
        let results = json!({ "rounds": 2, "runs": [run(1), run(2), run(3)] });
        // The second run's IOPS, and the tail of the rounds of the third.
        let quoted = |results: &serde_json::Value| {
            let runs = results["runs"].as_array().expect("runs");
            let iops = runs.iter().any(|run| run["median"]["iops"] == 2);
            let third = |run: &serde_json::Value| {
                run["rounds"][0]["p99"] == 2 && run["rounds"][0].get("iops").is_none_or(|i| i == 3)
            };
            iops && runs.last().is_some_and(third)
        };
        let pruned = json!({ "rounds": 2, "runs": [
            { "load": "x", "median": { "iops": 2 } },
            { "load": "x", "rounds": [{ "p99": 2 }, null] },
        ]});
        assert_eq!(prune(results, &quoted), pruned);
    }
}
