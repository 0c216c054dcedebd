//! The bodies of larder-cache as the proxy uses them: with its own requests and responses.

use crate::{flight::source::FetchContext, origin::body::OriginBody};
pub(crate) use larder_cache::http::body::fill;

pub(crate) mod continuation {
    pub(crate) use larder_cache::http::body::continuation::{ContinuedBody, MissingRange};

    pub(crate) type ContinuationAnswer = larder_cache::http::body::continuation::ContinuationAnswer<super::OriginBody>;
}

pub(crate) mod cursor {
    pub(crate) type BodyCursor = larder_cache::http::body::cursor::BodyCursor<super::FetchContext>;
}

pub(crate) mod long_body {
    pub(crate) use larder_cache::http::body::long_body::ArrivingPart;

    pub(crate) type LongBody = larder_cache::http::body::long_body::LongBody<super::FetchContext>;
    pub(crate) type BegunBody = larder_cache::http::body::long_body::BegunBody<super::FetchContext>;
}

pub(crate) mod open_body {
    pub(crate) type OpenBody = larder_cache::http::body::open_body::OpenBody<super::FetchContext>;
}

pub(crate) mod parts {
    pub(crate) type PartsReader = larder_cache::http::body::parts::PartsReader<super::FetchContext>;
    pub(crate) type PartsSource = larder_cache::http::body::parts::PartsSource<super::FetchContext>;
}

pub(crate) mod receiving {
    pub(crate) type ReceivedRun = larder_cache::http::body::receiving::ReceivedRun<super::FetchContext>;
}

pub(crate) mod storage {
    pub(crate) use larder_cache::http::body::storage::LandedBody;
}

pub(crate) mod table {
    pub(crate) type BodyTable = larder_cache::http::body::table::BodyTable<super::FetchContext>;
}
