//! Where a viewer goes on: `Last-Event-ID` or `?after=`, and the other words of the query.

use bex_proto::TurnNo;
use bex_proto::ids::PartId;
use bex_proto::ui_stream::Profile;
use http::{HeaderMap, Uri};

/// What a viewer asks for beside its ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wish {
    /// The last part the viewer has; only what follows is sent.
    pub after: Option<PartId>,
    /// Whether what is open at the cursor is started again.
    pub state: ViewerState,
    /// What a viewer without a cursor is shown.
    pub history: History,
    /// Which clients read it.
    pub profile: Profile,
    /// How what is stored is shown.
    pub density: Density,
}

/// Which turns a viewer without a cursor is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum History {
    /// All.
    #[default]
    Whole,
    /// `?last=N`: the last N, at least one.
    Last(u32),
    /// `?turn=N`: this one.
    Turn(TurnNo),
}

/// Whether a replay is folded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Density {
    /// Stored bytes, part by part.
    #[default]
    Verbatim,
    /// `?compact=1`: one chunk where many say the same.
    Compact,
}

/// Whether a viewer with a cursor still knows what is open there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ViewerState {
    /// It kept its state over a network drop.
    #[default]
    Kept,
    /// `&fresh=1`.
    Fresh,
}

/// The cursor does not parse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the cursor does not parse")]
pub struct CursorFault;

impl Wish {
    /// Reads of the query how a posted turn is shown; what is shown of it is its ticket's to say.
    pub fn of_turn(uri: &Uri) -> Self {
        let mut wish = Self::default();
        for word in words(uri) {
            match word {
                ("profile", "5") => wish.profile = Profile::Strict5,
                ("compact", "1") => wish.density = Density::Compact,
                _ => {}
            }
        }
        wish
    }

    /// Reads header and query. `Last-Event-ID` is what a client's library sends on its own, so it wins over the address it was
    /// given once; an empty one is no cursor, as browsers send none then.
    ///
    /// # Errors
    /// When a cursor is there and is not a part id.
    pub fn read(headers: &HeaderMap, uri: &Uri) -> Result<Self, CursorFault> {
        let mut wish = Self::of_turn(uri);
        let mut after = None;
        for word in words(uri) {
            match word {
                ("after", text) => after = Some(text),
                ("fresh", "1") => wish.state = ViewerState::Fresh,
                ("last", text) => wish.history = History::Last(count(text)?),
                ("turn", text) => wish.history = History::Turn(TurnNo(count(text)?)),
                // unknown words are other versions' business
                _ => {}
            }
        }
        let header = match headers.get("last-event-id") {
            Some(value) => {
                Some(value.to_str().map_err(|_| CursorFault)?).filter(|text| !text.is_empty())
            }
            None => None,
        };
        wish.after = match header.or(after) {
            Some(text) => Some(text.parse().map_err(|_| CursorFault)?),
            None => None,
        };
        Ok(wish)
    }
}

fn words(uri: &Uri) -> impl Iterator<Item = (&str, &str)> {
    let pairs = uri.query().unwrap_or("").split('&');
    pairs.filter_map(|pair| pair.split_once('='))
}

/// A number of at least 1.
fn count(text: &str) -> Result<u32, CursorFault> {
    let plain = text.bytes().all(|b| b.is_ascii_digit());
    text.parse()
        .ok()
        .filter(|n| plain && *n >= 1)
        .ok_or(CursorFault)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    type Read = Result<(Option<String>, ViewerState), CursorFault>;

    fn read(header: Option<&[u8]>, uri: &str) -> Read {
        let mut headers = HeaderMap::new();
        if let Some(value) = header {
            headers.insert(
                "last-event-id",
                HeaderValue::from_bytes(value).expect("a value"),
            );
        }
        let wish = Wish::read(&headers, &uri.parse().expect("a uri"))?;
        Ok((wish.after.map(|id| id.to_string()), wish.state))
    }

    #[test]
    fn cursors() {
        use ViewerState::{Fresh, Kept};
        let some = |text: &str, state| Ok((Some(text.to_owned()), state));
        let cases: &[(Option<&[u8]>, &str, Read)] = &[
            (None, "/s", Ok((None, Kept))),
            (None, "/s?", Ok((None, Kept))),
            (None, "/s?x=1", Ok((None, Kept))),
            (None, "/s?after=3.120", some("3.120", Kept)),
            (None, "/s?after=3.120&fresh=1", some("3.120", Fresh)),
            (None, "/s?fresh=1", Ok((None, Fresh))),
            (None, "/s?fresh=0&after=1.0", some("1.0", Kept)),
            (Some(b"3.121"), "/s?after=3.120", some("3.121", Kept)),
            (Some(b""), "/s?after=3.120", some("3.120", Kept)),
            (None, "/s?after=", Err(CursorFault)),
            (None, "/s?after=3", Err(CursorFault)),
            (None, "/s?after=0.1", Err(CursorFault)),
            (None, "/s?after=03.1", Err(CursorFault)),
            (None, "/s?after=3.-1", Err(CursorFault)),
            (None, "/s?after=3%2E1", Err(CursorFault)),
            (None, "/s?after=3.9223372036854775808", Err(CursorFault)),
            (Some(b"garbage"), "/s", Err(CursorFault)),
            (Some(b"\xff"), "/s", Err(CursorFault)),
            (Some(b"1.2\t"), "/s", Err(CursorFault)),
        ];
        for (header, uri, expected) in cases {
            assert_eq!(&read(*header, uri), expected, "{header:?} {uri}");
        }
    }

    #[test]
    fn the_other_words() {
        let wish = |uri: &str| Wish::read(&HeaderMap::new(), &uri.parse().expect("a uri"));
        let both = wish("/s?profile=5&compact=1&last=2").expect("a wish");
        assert_eq!(
            (both.profile, both.density, both.history),
            (Profile::Strict5, Density::Compact, History::Last(2))
        );
        assert_eq!(
            wish("/s?turn=3").map(|w| w.history),
            Ok(History::Turn(TurnNo(3)))
        );
        assert_eq!(
            wish("/s?profile=7&compact=0").map(|w| (w.profile, w.density)),
            Ok(Default::default())
        );
        for bad in [
            "/s?last=0",
            "/s?last=",
            "/s?last=-1",
            "/s?turn=0",
            "/s?turn=x",
            "/s?turn=4294967296",
            "/s?last=+1",
        ] {
            assert_eq!(wish(bad), Err(CursorFault), "{bad}");
        }
    }
}
