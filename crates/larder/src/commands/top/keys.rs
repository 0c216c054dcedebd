//! The keys of `larder top`.
//!
//! Owns: the order and the filter of the lists. Terminal and drawing are elsewhere.

use larder_proxy::AskedFor;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// The sort order and the filter of the lists of sites and URLs.
#[derive(Debug, Default)]
pub(crate) struct TopView {
    pub(super) order: ListOrder,
    /// Text that a name must contain to be listed, whether in upper or lower case. If it is empty, all names are
    /// listed.
    pub(super) filter: String,
    /// Whether the user is typing the filter. While this is true, keys add letters to the filter.
    pub(super) is_typing: bool,
}

/// The property by which the lists are sorted. Names are in ascending order, and figures in descending order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ListOrder {
    #[default]
    Requests,
    Misses,
    Saved,
    Name,
}

/// The effect of a key on the command as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyEffect {
    Redraw,
    Quit,
}

impl TopView {
    /// Changes the order or the filter as the key demands. Returns the key's effect on the command.
    pub(super) fn press(&mut self, key: KeyEvent) -> KeyEffect {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c' | 'd') if is_control => return KeyEffect::Quit,
            KeyCode::Char(_) if is_control => {}
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc if self.is_typing || !self.filter.is_empty() => {
                self.is_typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace if self.is_typing => drop(self.filter.pop()),
            KeyCode::Char(letter) if self.is_typing => {
                self.filter.push(letter);
                self.filter = self.filter.chars().take(FILTER_CHARS_MAX).collect();
            }
            KeyCode::Char('q') | KeyCode::Esc => return KeyEffect::Quit,
            KeyCode::Char('/' | 'f') => self.is_typing = true,
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char('r') => self.order = ListOrder::Requests,
            KeyCode::Char('m') => self.order = ListOrder::Misses,
            KeyCode::Char('b') => self.order = ListOrder::Saved,
            KeyCode::Char('n') => self.order = ListOrder::Name,
            _ => {}
        }
        KeyEffect::Redraw
    }

    /// Returns the entries whose name contains the filter, in the chosen order.
    pub(super) fn listed<'a>(&self, list: &'a [AskedFor]) -> Vec<&'a AskedFor> {
        let filter = self.filter.to_lowercase();
        let mut listed: Vec<&AskedFor> =
            list.iter().filter(|each| each.name.to_lowercase().contains(&filter)).collect();
        let by = |each: &AskedFor| match self.order {
            ListOrder::Requests => each.counted.hits + each.counted.misses + each.counted.others,
            ListOrder::Misses => each.counted.misses,
            ListOrder::Saved => each.counted.saved_bytes,
            ListOrder::Name => 0,
        };
        match self.order {
            ListOrder::Name => listed.sort_by_key(|each| &each.name),
            _ => listed.sort_by_key(|each| std::cmp::Reverse(by(each))),
        }
        listed
    }
}

impl ListOrder {
    fn next(self) -> Self {
        match self {
            Self::Requests => Self::Misses,
            Self::Misses => Self::Saved,
            Self::Saved => Self::Name,
            Self::Name => Self::Requests,
        }
    }

    /// Returns the name of the order, for the bottom line of the frame.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Misses => "misses",
            Self::Saved => "bytes saved",
            Self::Name => "name",
        }
    }
}

/// Maximum length of the filter, in characters.
const FILTER_CHARS_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;
    use larder_proxy::RequestFigures;

    fn press(view: &mut TopView, keys: &str) -> KeyEffect {
        let press = |letter| view.press(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::NONE));
        keys.chars().map(press).last().expect("there are keys")
    }

    fn asked(name: &str, hits: u64, misses: u64) -> AskedFor {
        let counted = RequestFigures { hits, misses, ..RequestFigures::default() };
        let mut asked = AskedFor::default();
        (asked.name, asked.counted) = (name.to_owned(), counted);
        asked
    }

    fn names(view: &TopView) -> Vec<String> {
        let list = [asked("b.example", 9, 1), asked("a.example", 2, 3), asked("c.test", 5, 0)];
        view.listed(&list).into_iter().map(|each| each.name.clone()).collect()
    }

    #[test]
    fn keys_sort_the_lists() {
        let mut view = TopView::default();
        assert_eq!(names(&view), ["b.example", "a.example", "c.test"]);
        press(&mut view, "m");
        assert_eq!(names(&view), ["a.example", "b.example", "c.test"]);
        press(&mut view, "n");
        assert_eq!(names(&view), ["a.example", "b.example", "c.test"]);
        press(&mut view, "s");
        assert_eq!(view.order, ListOrder::Requests);
    }

    #[test]
    fn typed_text_filters_the_lists_and_does_not_quit() {
        let mut view = TopView::default();
        assert_eq!(press(&mut view, "/Example"), KeyEffect::Redraw);
        assert_eq!(names(&view), ["b.example", "a.example"]);
        assert_eq!(press(&mut view, "q"), KeyEffect::Redraw);
        assert_eq!(names(&view), [""; 0]);
        let escape = KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE);
        assert_eq!(view.press(escape), KeyEffect::Redraw);
        assert_eq!(names(&view).len(), 3);
        assert_eq!(press(&mut view, "q"), KeyEffect::Quit);
        assert_eq!(TopView::default().press(escape), KeyEffect::Quit);
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(TopView { is_typing: true, ..TopView::default() }.press(control_c), KeyEffect::Quit);
    }
}
