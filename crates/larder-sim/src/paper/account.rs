//! The account: how many of the papers' claims are compared, met and predicted, and which are not.
//!
//! A claim is one finding, which a paper may print several times. It is compared if each of its rows is compared or has
//! a reason not to be, and at least one is. It is met if all compared rows are. It is predicted if it is met and all
//! these rows are predictions.

use super::{
    beds::{self, BedConstant},
    catalog::{CatalogRow, Entry, Exclusion, rows},
    history, ranges,
};
use crate::{
    Comparison, ComparisonBasis, MODELS, Model, Report, Table,
    report::{number, range_text},
};

/// The short names of the papers in the catalog, each with the paper's title.
const PAPER_NAMES: [(&str, &str); 5] = [
    ("markatos", "Markatos et al."),
    ("squid", "Performance Issues in Squid"),
    ("hashcache", "HashCache"),
    ("esp", "ESP"),
    ("ucfs", "UCFS"),
];

/// A row of the catalog with its comparison; `None` if it is not compared.
type ComparedRow = (&'static CatalogRow, Option<Comparison>);

/// A claim of a paper, with the rows of the catalog that belong to it.
struct Claim {
    rows: Vec<ComparedRow>,
}

/// Returns the account of `reports`: which claims of the papers they compare, meet and predict. Its title states the
/// result in one sentence.
pub(super) fn account(reports: &[Report]) -> Report {
    let claims = claims(reports);
    let count = |is_counted: fn(&Claim) -> bool| claims.iter().filter(|claim| is_counted(claim)).count();
    let compared = count(Claim::is_compared);
    let met = count(Claim::is_met);
    let predicted = count(Claim::is_predicted);
    let mut account = Report::new(format!(
        "Of {} claims, {compared} are compared, {met} agree within 25% in all their rows, and {predicted} is predicted",
        claims.len()
    ));
    let missed = claims.iter().filter(|claim| claim.is_compared() && !claim.is_met());
    account.tables = vec![
        by_claim("Claims that are missed", missed),
        missed_rows(&claims),
        by_claim("Claims within 25% in all their rows", claims.iter().filter(|claim| claim.is_met())),
        by_claim("Claims that are not compared", claims.iter().filter(|claim| !claim.is_compared())),
        by_paper(&claims),
        by_basis(&claims),
        ranges::verdicts(),
        history::table(),
    ];
    account.remarks = vec![incomplete(&claims)];
    account.remarks.extend(reasons());
    account.remarks.extend(calibrated());
    account.remarks.extend(assumed());
    account
        .remarks
        .push(format!("The files of the machines and beds together have the hash {:016x}.", history::models_hash()));
    account
}

/// Returns all claims, in the order of the catalog.
fn claims(reports: &[Report]) -> Vec<Claim> {
    let line = |report: &str, what: &str| {
        let of_name = reports.iter().find(|known| known.name == Some(report))?;
        of_name.comparisons.iter().find(|line| line.what == what).map(|line| line.simulated)
    };
    let mut claims: Vec<Claim> = Vec::new();
    for row in rows() {
        let compared = (row, row.compared(line));
        match claims.iter_mut().find(|claim| claim.rows[0].0.claim == row.claim) {
            Some(claim) => claim.rows.push(compared),
            None => claims.push(Claim { rows: vec![compared] }),
        }
    }
    claims
}

impl Claim {
    fn comparisons(&self) -> impl Iterator<Item = &Comparison> {
        self.rows.iter().filter_map(|(_, comparison)| comparison.as_ref())
    }

    fn is_compared(&self) -> bool {
        let is_settled = |(row, comparison): &ComparedRow| match row.entry {
            Entry::Compared(_) => comparison.is_some(),
            Entry::LeftOut(exclusion, _) => exclusion != Exclusion::Open,
        };
        self.comparisons().next().is_some() && self.rows.iter().all(is_settled)
    }

    fn is_met(&self) -> bool {
        self.is_compared() && self.comparisons().all(Comparison::is_met)
    }

    fn is_predicted(&self) -> bool {
        self.is_met() && self.comparisons().all(|line| line.basis == ComparisonBasis::Predicted)
    }

    /// Returns the name of the claim, what it is about, and how independent its comparisons are.
    fn title(&self) -> String {
        let (first, _) = &self.rows[0];
        let has = |basis: &ComparisonBasis| self.comparisons().any(|line| line.basis == *basis);
        let bases: Vec<_> = ComparisonBasis::ALL.into_iter().filter(has).map(ComparisonBasis::name).collect();
        let bases = if bases.is_empty() { String::new() } else { format!(" ({})", bases.join(", ")) };
        format!("{}: {}{bases}", first.claim, first.quantity)
    }

    /// Returns three numbers: of all rows, of those that are compared, and of those that agree with the paper.
    fn counts(&self) -> [usize; 3] {
        [self.rows.len(), self.comparisons().count(), self.comparisons().filter(|line| line.is_met()).count()]
    }
}

fn by_claim<'a>(title: &str, claims: impl Iterator<Item = &'a Claim>) -> Table {
    let mut table = Table::new(title, &["claim (line is)", "rows", "compared", "met"]);
    for claim in claims {
        table.push(claim.title(), claim.counts().map(|count| count as f64).to_vec());
    }
    table
}

/// Returns a table of the rows that do not agree with the paper, the farthest first.
fn missed_rows(claims: &[Claim]) -> Table {
    let rows = claims.iter().flat_map(|claim| &claim.rows);
    let compared = rows.filter_map(|(row, comparison)| comparison.as_ref().map(|line| (row, line)));
    let mut missed: Vec<_> = compared.filter(|(_, line)| !line.is_met()).collect();
    missed.sort_by(|(_, one), (_, other)| other.distance().total_cmp(&one.distance()));
    let mut table = Table::new("Rows that are missed, farthest first", &["row", "paper", "simulated", "ratio"]);
    for (row, line) in missed {
        let CatalogRow { id, quantity, unit, .. } = row;
        let nearest = line.simulated.clamp(line.paper, line.paper_most);
        let name = format!("{id}: {quantity}, {unit} ({})", line.basis.name());
        table.push(name, vec![nearest, line.simulated, line.ratio()]);
    }
    table
}

fn by_paper(claims: &[Claim]) -> Table {
    let columns = ["paper", "claims", "compared", "within 25%", "predicted", "rows", "rows compared", "rows met"];
    let mut table = Table::new("Claims and rows of each paper", &columns);
    for (short, name) in PAPER_NAMES {
        let own: Vec<_> = claims.iter().filter(|claim| claim.rows[0].0.paper == short).collect();
        let count = |is_counted: fn(&Claim) -> bool| own.iter().filter(|claim| is_counted(claim)).count();
        let of_claims = [own.len(), count(Claim::is_compared), count(Claim::is_met), count(Claim::is_predicted)];
        let add = |sum: [usize; 3], claim: &&Claim| {
            let [rows, compared, met] = claim.counts();
            [sum[0] + rows, sum[1] + compared, sum[2] + met]
        };
        let of_rows = own.iter().fold([0; 3], add);
        table.push(name, of_claims.into_iter().chain(of_rows).map(|count| count as f64).collect());
    }
    table
}

fn by_basis(claims: &[Claim]) -> Table {
    let mut table = Table::new("Compared rows by basis", &["line is", "rows compared", "rows met"]);
    for basis in ComparisonBasis::ALL {
        let lines = || claims.iter().flat_map(Claim::comparisons).filter(|line| line.basis == basis);
        let met = lines().filter(|line| line.is_met()).count();
        table.push(basis.name(), vec![lines().count() as f64, met as f64]);
    }
    table
}

/// Returns a remark that names the claims that are met although some of their rows cannot be compared.
fn incomplete(claims: &[Claim]) -> String {
    let is_incomplete = |claim: &&Claim| claim.is_met() && claim.comparisons().count() < claim.rows.len();
    let names: Vec<_> = claims.iter().filter(is_incomplete).map(|claim| claim.rows[0].0.claim).collect();
    format!("Some claims count as met although a part of their rows cannot be compared: {}.", names.join(", "))
}

/// Returns a remark for each reason why rows are not compared.
fn reasons() -> Vec<String> {
    let mut reasons: Vec<(Exclusion, &str, Vec<&str>)> = Vec::new();
    for row in rows() {
        let Entry::LeftOut(exclusion, reason) = row.entry else { continue };
        match reasons.iter_mut().find(|known| known.0 == exclusion && known.1 == reason) {
            Some((.., ids)) => ids.push(row.id),
            None => reasons.push((exclusion, reason, vec![row.id])),
        }
    }
    let of_kind = |kind| reasons.iter().filter(move |(exclusion, ..)| *exclusion == kind);
    let kinds = [Exclusion::Open, Exclusion::Impossible, Exclusion::Input];
    let sorted = kinds.into_iter().flat_map(of_kind);
    let remark = |(exclusion, reason, ids): &(Exclusion, &str, Vec<&str>)| {
        let rows = if let [id] = ids[..] { format!("The row {id}") } else { format!("The rows {}", ids.join(", ")) };
        format!("{rows} {}: {reason}.", exclusion.predicate(ids.len() == 1))
    };
    sorted.map(remark).collect()
}

impl Exclusion {
    /// Returns the predicate of a sentence about rows that are not compared, for one row or several.
    fn predicate(self, is_one: bool) -> &'static str {
        match (self, is_one) {
            (Self::Input, true) => "is not compared, because it is an input",
            (Self::Input, false) => "are not compared, because they are inputs",
            (Self::Impossible, _) => "cannot be compared",
            (Self::Open, true) => "is not simulated yet",
            (Self::Open, false) => "are not simulated yet",
        }
    }
}

/// Returns a remark for each machine that has constants fitted to results.
fn calibrated() -> impl Iterator<Item = String> {
    MODELS.iter().filter_map(|(name, _)| {
        let model = Model::open(name).expect("the machines that come along are right");
        let is_calibrated = |note: &&crate::Note| note.source.starts_with("[C]");
        let constants: Vec<_> = model.notes.iter().filter(is_calibrated).map(|note| note.name.as_str()).collect();
        (!constants.is_empty()).then(|| {
            format!("These constants of the machine {name} were chosen to match results: {}.", constants.join(", "))
        })
    })
}

/// Returns a remark for each constant of a test bed that is uncertain, with the range in which it may lie.
fn assumed() -> impl Iterator<Item = String> {
    beds::constants().iter().filter_map(|(name, BedConstant { value, range, .. })| {
        let (least, most) = (*range)?;
        Some(format!(
            "The constant {name} is assumed to be {}, and values of {} are plausible.",
            number(*value),
            range_text(least, most)
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(name: &'static str, lines: &[(&str, f64)]) -> Report {
        let comparisons =
            lines.iter().map(|(what, simulated)| Comparison::published(name, *what, *simulated)).collect();
        Report { name: Some(name), comparisons, ..Report::default() }
    }

    /// Guards against a claim that counts as met although one of its rows is not. The paper prints 50 ms both as a
    /// bound and as an approximate value.
    #[test]
    fn claim_is_met_only_if_all_its_rows_are() {
        let line = "create and remove, 4 KB: close to";
        let account = |value| account(&[report("markatos-figure3", &[(line, value)])]);
        let met = account(50.0).title;
        assert!(met.starts_with("Of 74 claims, 3 are compared, 3 agree within"), "{met}");
        let missed = account(50.1).title;
        assert!(missed.starts_with("Of 74 claims, 3 are compared, 2 agree within"), "{missed}");
    }

    #[test]
    fn reasons_name_each_row_that_is_left_out_once() {
        let reasons = reasons().join(" ");
        assert!(reasons.contains(" cannot be compared: "), "{reasons}");
        let named: Vec<_> = reasons.split(['(', ')', ',', ' ']).collect();
        for row in rows() {
            let is_left_out = matches!(row.entry, Entry::LeftOut(..));
            assert_eq!(named.iter().filter(|id| **id == row.id).count(), usize::from(is_left_out), "{}", row.id);
            assert!(PAPER_NAMES.iter().any(|(short, _)| *short == row.paper), "{}", row.id);
        }
    }
}
