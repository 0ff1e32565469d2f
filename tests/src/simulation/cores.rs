//! The generators of a process, as the product has them: in the process itself, or in the compiled component.

use unalike_core::{
    OrderedGenerator, OrderedOptions, ReserveError, Run, SequenceGenerator, SequenceOptions, SnowflakeGenerator,
    SnowflakeOptions,
};

use super::requests::{LeaseRequests, SegmentRequests};

/// Makes generators.
pub(crate) trait Core: Send + Sync {
    fn sequence(&self, tag: &str, options: SequenceOptions, requests: SegmentRequests) -> Box<dyn Generator>;

    fn snowflake(&self, namespace: &str, options: SnowflakeOptions, requests: LeaseRequests) -> Box<dyn Generator>;

    fn ordered(&self, tag: &str, requests: SegmentRequests) -> Box<dyn Rounds>;
}

/// Hands out runs.
pub(crate) trait Generator: Send {
    fn reserve(&mut self, now_ms: u64, max: u32) -> Result<Run, ReserveError>;

    /// Hands out nothing more, and gives back what is left.
    fn close(&mut self) {}
}

/// Hands out one run per round.
pub(crate) trait Rounds: Send {
    fn begin(&mut self, now_ms: u64, count: u32) -> Result<u64, ReserveError>;

    fn claim(&mut self, now_ms: u64, round: u64) -> Result<Run, ReserveError>;
}

/// The core as it is in Rust.
pub(crate) struct Native;

impl Core for Native {
    fn sequence(&self, tag: &str, options: SequenceOptions, requests: SegmentRequests) -> Box<dyn Generator> {
        let generator = SequenceGenerator::open(tag.to_owned(), options, requests.floor()).unwrap();
        Box::new(Sequence { generator, requests })
    }

    fn snowflake(&self, namespace: &str, options: SnowflakeOptions, requests: LeaseRequests) -> Box<dyn Generator> {
        Box::new(Snowflake { generator: SnowflakeGenerator::open(namespace.to_owned(), options).unwrap(), requests })
    }

    fn ordered(&self, tag: &str, requests: SegmentRequests) -> Box<dyn Rounds> {
        let options = OrderedOptions { floor: requests.floor(), ..OrderedOptions::default() };
        Box::new(Ordered { generator: OrderedGenerator::open(tag.to_owned(), options).unwrap(), requests })
    }
}

struct Sequence {
    generator: SequenceGenerator,
    requests: SegmentRequests,
}

impl Generator for Sequence {
    fn reserve(&mut self, now_ms: u64, max: u32) -> Result<Run, ReserveError> {
        self.generator.reserve(&mut self.requests, now_ms, max)
    }

    fn close(&mut self) {
        self.generator.close(&mut self.requests);
    }
}

struct Snowflake {
    generator: SnowflakeGenerator,
    requests: LeaseRequests,
}

impl Generator for Snowflake {
    fn reserve(&mut self, now_ms: u64, max: u32) -> Result<Run, ReserveError> {
        self.generator.reserve(&mut self.requests, now_ms, max)
    }

    fn close(&mut self) {
        self.generator.close(&mut self.requests);
    }
}

struct Ordered {
    generator: OrderedGenerator,
    requests: SegmentRequests,
}

impl Rounds for Ordered {
    fn begin(&mut self, now_ms: u64, count: u32) -> Result<u64, ReserveError> {
        self.generator.begin(&mut self.requests, now_ms, count)
    }

    fn claim(&mut self, now_ms: u64, round: u64) -> Result<Run, ReserveError> {
        self.generator.claim(&mut self.requests, now_ms, round)
    }
}
