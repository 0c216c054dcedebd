//! The body types of larder-cache, with this proxy's types of requests and responses.

use crate::origins::{body::OriginBody, fetcher::OriginFetcher};

pub(crate) mod continuation {
    pub(crate) use larder_cache::http::body::continuation::MissingRange;

    pub(crate) type ContinuationAnswer = larder_cache::http::body::continuation::ContinuationAnswer<super::OriginBody>;
}

pub(crate) mod cursor {
    pub(crate) type BodyCursor = larder_cache::http::body::cursor::BodyCursor<super::OriginFetcher>;
}

pub(crate) mod parts {
    pub(crate) type PartsReader = larder_cache::http::body::parts::PartsReader<super::OriginFetcher>;
}

pub(crate) mod table {
    pub(crate) type BodyTable = larder_cache::http::body::table::BodyTable<super::OriginFetcher>;
}
