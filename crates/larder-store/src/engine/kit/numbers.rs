//! Numbers that no two runs share: reserved durably before they are used.
//!
//! Owns: the next number, and the end of the reserved ones. I/O is done elsewhere: a reservation writes
//! [`RunNumbers::next_end`] to the volume, and calls [`RunNumbers::reserve_until`] once that is durable. After a crash,
//! the next run continues from there. Invariant: only reserved numbers are used. On the volume, numbers may have 32
//! bits and wrap, because they are only compared for equality.

/// The numbers that one run of the store may use, for example as sequences of its writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunNumbers {
    next: u64,
    /// The first number that is not reserved.
    end: u64,
    /// Maximum number of numbers that one reservation adds.
    batch: u64,
}

impl RunNumbers {
    /// Creates a source of numbers, whose first number is `next`. No number is reserved yet; each reservation adds up
    /// to `batch` numbers.
    pub(crate) fn new(next: u64, batch: u64) -> Self {
        assert!(batch > 1 && next.checked_add(batch).is_some());
        Self { next, end: next, batch }
    }

    /// Returns the next number; `None` if no reserved number is left.
    pub(crate) fn take(&mut self) -> Option<u64> {
        assert!(self.next <= self.end, "no number was taken that is not reserved");
        let number = self.next;
        (number < self.end).then(|| {
            self.next += 1;
            number
        })
    }

    /// Notes that the numbers below `end` are durably reserved.
    pub(crate) fn reserve_until(&mut self, end: u64) {
        assert!(
            self.end <= end && end - self.next <= self.batch,
            "what is reserved stays so, and one batch at most is"
        );
        self.end = end;
    }

    /// Returns the exclusive end to which the next reservation should extend.
    pub(crate) fn next_end(&self) -> u64 {
        self.next + self.batch
    }

    /// Returns the number that [`Self::take`] would return next.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Returns whether no reserved number is left.
    pub(crate) fn are_spent(&self) -> bool {
        self.next == self.end
    }

    /// Returns whether the next reservation is due, because less than half of one reservation is left.
    pub(crate) fn are_scarce(&self) -> bool {
        self.end - self.next < self.batch / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guards against numbers that two runs share: a write of the first run could be mistaken for one of the second.
    #[test]
    fn no_number_is_taken_before_it_is_reserved() {
        let mut numbers = RunNumbers::new(100, 4);
        assert!(numbers.take().is_none() && numbers.are_spent() && numbers.are_scarce());
        numbers.reserve_until(numbers.next_end());
        let taken: Vec<_> = std::iter::from_fn(|| numbers.take()).collect();
        assert_eq!(taken, [100, 101, 102, 103]);
        numbers.reserve_until(numbers.next_end());
        assert_eq!((numbers.next(), numbers.take(), numbers.are_scarce()), (104, Some(104), false));
        numbers.take();
        numbers.take();
        assert!(numbers.are_scarce() && !numbers.are_spent());
        // The run ends here. The next one continues after all numbers that this one may have used.
        assert_eq!(RunNumbers::new(108, 4).next(), 108);
    }
}
