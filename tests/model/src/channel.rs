//! The channel's ends, written plainly: lists that are searched, and bounds as trees.

use std::collections::BTreeMap;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// A call of a [`BrokerModel`]: the how manieth that was asked.
pub type Name = usize;

/// How a call of the model ended, and when, in ms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The call.
    pub name: Name,
    /// When.
    pub at: u64,
    /// By its answer, or by a word.
    pub how: How,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// By its answer.
    Answered,
    /// Its time was up.
    TimedOut,
    /// Its link closed, or it was not sent.
    Closed,
}

#[derive(Debug)]
struct Waiting {
    name: Name,
    ends: u64,
    link: usize,
}

/// A broker that keeps its calls in a list.
#[derive(Debug)]
pub struct BrokerModel {
    capacity: usize,
    patience: u64,
    waiting: Vec<Waiting>,
    asked: Name,
    links: usize,
    link: Option<usize>,
    /// All endings so far, in their order.
    pub ended: Vec<Ended>,
}

impl BrokerModel {
    /// Makes one without a link.
    #[must_use]
    pub const fn new(capacity: usize, patience: u64) -> Self {
        let waiting = Vec::new();
        Self { capacity, patience, waiting, asked: 0, links: 0, link: None, ended: Vec::new() }
    }

    /// Lets time pass: every call whose time is up at `now` ends, at that time.
    pub fn pass(&mut self, now: u64) {
        while let Some(first) = (0..self.waiting.len())
            .min_by_key(|at| (self.waiting[*at].ends, self.waiting[*at].name))
        {
            if self.waiting[first].ends > now {
                return;
            }
            let Waiting { name, ends, .. } = self.waiting.remove(first);
            self.ended.push(Ended { name, at: ends, how: How::TimedOut });
        }
    }

    /// Makes a call, or says why it is refused.
    ///
    /// # Errors
    /// There is no link, or no room.
    pub fn ask(&mut self, now: u64, patience: Option<u64>) -> Result<Name, &'static str> {
        let link = self.link.ok_or("absent")?;
        if self.waiting.len() == self.capacity {
            return Err("full");
        }
        let name = self.asked;
        self.asked += 1;
        let patience = patience.unwrap_or(u64::MAX).min(self.patience);
        self.waiting.push(Waiting { name, ends: now.saturating_add(patience), link });
        Ok(name)
    }

    /// An answer to a call over a link, which are counted from 0; whether it settled something.
    pub fn answer(&mut self, now: u64, link: usize, name: Name) -> bool {
        let place = self.waiting.iter().position(|one| one.name == name && one.link == link);
        self.end(now, place, How::Answered)
    }

    /// A call could not be sent; whether it was in flight.
    pub fn send_failed(&mut self, now: u64, name: Name) -> bool {
        let place = self.waiting.iter().position(|one| one.name == name);
        self.end(now, place, How::Closed)
    }

    fn end(&mut self, at: u64, place: Option<usize>, how: How) -> bool {
        let Some(place) = place else { return false };
        let name = self.waiting.remove(place).name;
        self.ended.push(Ended { name, at, how });
        true
    }

    /// Nobody waits for a call.
    pub fn cancel(&mut self, name: Name) {
        self.waiting.retain(|one| one.name != name);
    }

    /// A new link, in the place of one that may be there; which one it is.
    pub fn up(&mut self, now: u64) -> usize {
        self.close(now);
        self.links += 1;
        self.link = Some(self.links - 1);
        self.links - 1
    }

    /// The end of a link, when it is still there.
    pub fn down(&mut self, now: u64, link: usize) {
        if self.link == Some(link) {
            self.close(now);
        }
    }

    fn close(&mut self, at: u64) {
        self.link = None;
        for Waiting { name, .. } in self.waiting.drain(..) {
            self.ended.push(Ended { name, at, how: How::Closed });
        }
    }

    /// How many calls are in flight.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// When the next of them ends by time.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        self.waiting.iter().map(|one| one.ends).min()
    }
}

/// A JSON value as bounds are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Tree {
    Null,
    Bool(bool),
    Text(String),
    /// A sign, the digits without zeros at either end, the power of ten of the last.
    Number(bool, String, i64),
    Array(Vec<Tree>),
    /// None with a member twice.
    Object(BTreeMap<String, Tree>),
    /// An object with a member twice, which equals nothing.
    Repeated,
}

/// Whether two texts are equal as bounds, by serde_json's reading of them: `None` when it cannot
/// say, since one is no JSON to it or has a number that is not worth comparing.
#[must_use]
pub fn bounds_equal(admitted: &str, echo: &str) -> Option<bool> {
    let (admitted, echo) = (tree(admitted)?, tree(echo)?);
    Some(admitted == echo && !repeats(&echo))
}

fn repeats(tree: &Tree) -> bool {
    match tree {
        Tree::Repeated => true,
        Tree::Array(items) => items.iter().any(repeats),
        Tree::Object(members) => members.values().any(repeats),
        _ => false,
    }
}

fn tree(text: &str) -> Option<Tree> {
    let raw: &RawValue = serde_json::from_str(text).ok()?;
    let raw = raw.get();
    Some(match raw.as_bytes().first()? {
        b'{' => {
            let Members(members) = serde_json::from_str(raw).ok()?;
            let mut object = BTreeMap::new();
            let mut twice = false;
            for (name, value) in members {
                twice |= object.insert(name, tree(value.get())?).is_some();
            }
            if twice { Tree::Repeated } else { Tree::Object(object) }
        }
        b'[' => {
            let items: Vec<&RawValue> = serde_json::from_str(raw).ok()?;
            Tree::Array(items.into_iter().map(|item| tree(item.get())).collect::<Option<_>>()?)
        }
        b'"' => Tree::Text(serde_json::from_str(raw).ok()?),
        b't' | b'f' => Tree::Bool(raw == "true"),
        b'n' => Tree::Null,
        _ => number(raw)?,
    })
}

fn number(raw: &str) -> Option<Tree> {
    let (mantissa, exponent) = raw.split_once(['e', 'E']).unwrap_or((raw, "0"));
    let exponent: i64 =
        exponent.parse().ok().filter(|exponent: &i64| exponent.abs() < 1_000_000_000)?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{}{fraction}", whole.trim_start_matches('-'));
    let digits = digits.trim_start_matches('0');
    let kept = digits.trim_end_matches('0');
    if kept.is_empty() {
        return Some(Tree::Number(false, String::new(), 0));
    }
    let power = exponent - fraction.len() as i64 + (digits.len() - kept.len()) as i64;
    Some(Tree::Number(whole.starts_with('-'), kept.into(), power))
}

/// An object's members, in their order, repeated ones too.
struct Members<'t>(Vec<(String, &'t RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Each)
    }
}
