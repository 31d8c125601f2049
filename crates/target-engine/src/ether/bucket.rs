//! Rate limit: a burst and a number of events per second.

use roadtrain_proto::time::Instant;

/// A token bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    burst: u32,
    per_second: u32,
    level: u32,
    /// Time up to which the bucket has been filled.
    filled: Instant,
}

impl Bucket {
    /// Creates a full bucket.
    pub(crate) fn new(burst: u32, per_second: u32) -> Self {
        Bucket { burst, per_second, level: burst, filled: Instant::default() }
    }

    /// Takes one token. Returns false if the bucket is empty.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let each_ns = 1_000_000_000 / u64::from(self.per_second);
        let new = now.0.saturating_sub(self.filled.0) / each_ns;
        if new >= u64::from(self.burst - self.level) {
            (self.level, self.filled) = (self.burst, now);
        } else {
            self.level += new as u32; // less than `burst`
            self.filled = Instant(self.filled.0 + new * each_ns);
        }
        let taken = self.level > 0;
        self.level -= u32::from(taken);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_burst_then_its_rate() {
        let mut bucket = Bucket::new(3, 1000);
        let at = |us: u64| Instant(1_000_000_000 + us * 1000);
        let takes = |bucket: &mut Bucket, us| (0..10).filter(|_| bucket.take(at(us))).count();
        assert_eq!(takes(&mut bucket, 0), 3);
        assert_eq!(takes(&mut bucket, 999), 0);
        assert_eq!(takes(&mut bucket, 1000), 1);
        assert_eq!(takes(&mut bucket, 2999), 1, "what is not full yet is not lost");
        assert_eq!(takes(&mut bucket, 3000), 1);
        assert_eq!(takes(&mut bucket, 1_000_000), 3);
    }
}
