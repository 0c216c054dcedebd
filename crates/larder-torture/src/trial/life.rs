//! The lives of a store: created, closed, killed, and opened again.

use super::{Crash, Durable, Trial, as_device};
use crate::drive::drive;
use larder_device::{FaultPlan, FaultStats};
use larder_store::Store;
use std::sync::Arc;

impl Trial {
    /// Creates the store on a device without faults. The device has faults only after that.
    ///
    /// # Errors
    /// A text that says why the store cannot be created.
    pub(super) fn create(&mut self) -> Result<(), String> {
        let store = self.open_store();
        self.store = Some(store.map_err(|error| format!("the store cannot be created: {error}"))?);
        self.device.set_plan(self.plan.clone());
        Ok(())
    }

    /// Makes the device fail for good after `count` more operations. The next [`crate::Operation::Crash`] replaces it
    /// by a working device with the same bytes.
    pub fn die_after(&mut self, count: u64) {
        let stats = self.device.stats();
        self.dying = Some(stats);
        self.plan.dead_after = Some(stats.transfers + count);
        self.device.set_plan(self.plan.clone());
    }

    /// Returns whether the device has failed for good because of [`Self::die_after`].
    pub fn is_dead(&self) -> bool {
        self.dying.is_some() && self.has_died()
    }

    /// Returns whether all operations of the device now fail.
    pub(super) fn has_died(&self) -> bool {
        self.plan.dead_after.is_some_and(|last| self.device.stats().transfers > last)
    }

    /// Returns whether a sync has failed and lost writes since the store was opened.
    fn has_lost_now(&self) -> bool {
        self.device.stats().sync_losses > self.losses_before
    }

    pub(super) fn clear(&mut self) -> Result<(), String> {
        let Some(store) = self.store.clone() else { return Ok(()) };
        let begun = self.tick();
        let outcome = drive(&self.device, store.clear());
        let ended = self.tick();
        self.say(|_| format!("{ended} cleared since {begun}: {outcome:?}"));
        match outcome.map_err(|stuck| format!("clearing: {stuck}"))? {
            Ok(()) => self.histories.values_mut().for_each(|history| history.invalidate(begun, ended)),
            Err(error) if self.faults() == 0 => return Err(format!("clearing without a fault: {error}")),
            Err(_) => {
                self.tally.failures += 1;
                self.excuses.note_failed_invalidation(ended);
            }
        }
        Ok(())
    }

    pub(super) fn reopen(&mut self) -> Result<(), String> {
        let Some(store) = self.store.take() else { return Ok(()) };
        let closed = drive(&self.device, store.close()).map_err(|stuck| format!("closing: {stuck}"))?;
        drop(store);
        while self.device.turn() {}
        self.note_faults();
        let now = self.tick();
        self.say(|_| format!("{now} closed: {closed:?}"));
        let is_clean = closed.is_ok();
        match closed {
            Ok(()) => self.durable = Durable { kill: now, power: now, ..Durable::default() },
            Err(error) if self.faults() == 0 => return Err(format!("closing without a fault: {error}")),
            Err(_) => {
                self.tally.failures += 1;
                self.device = Arc::new(self.device.kill());
            }
        }
        if !is_clean && self.has_lost_now() {
            self.pass_on(Crash::PowerCut, self.durable.power, false);
        } else {
            self.pass_on(Crash::Kill, self.durable.kill, is_clean || self.outlives(Crash::Kill));
        }
        self.open()
    }

    pub(super) fn crash(&mut self, how: Crash, again_after: Option<u64>) -> Result<(), String> {
        let store = self.store.take();
        self.may_be_unaware = self.has_lost_now() && store.as_ref().is_none_or(|store| store.stats().volumes_out > 0);
        if store.is_none() && self.dying.is_none() {
            return Ok(());
        }
        drop(store);
        if let Some(alive) = self.dying.take() {
            self.stage(alive);
            self.plan.dead_after = None;
        }
        self.end_at_once(how);
        if let Some(count) = again_after {
            let last = self.device.stats().transfers + count;
            self.device.set_plan(FaultPlan { dead_after: Some(last), ..self.prompt() });
            let before = self.device.stats();
            drop(self.open_store());
            self.stage(before);
            let bad_reads = self.device.stats().bad_reads() - before.bad_reads();
            self.end_at_once(how);
            // Unreadable data may have been taken for free space, and overwritten.
            self.excuse_misreads(bad_reads);
        }
        self.open()
    }

    /// Counts the faults since `before` as staged: they belong to the prescribed end of the device, and no later
    /// operation is excused by them.
    fn stage(&mut self, before: FaultStats) {
        let after = self.device.stats();
        self.staged.read_errors += after.read_errors - before.read_errors;
        self.staged.write_errors += after.write_errors - before.write_errors;
        self.staged.sync_errors += after.sync_errors - before.sync_errors;
        // If a sync failed before the device died, the store may have noted that the next start must not believe it.
        let may_fail_alive = self.plan.sync_errors_ppm > 0 || self.plan.error_at.is_some();
        let has_failed = may_fail_alive && after.sync_errors > before.sync_errors;
        if has_failed || after.sync_losses > before.sync_losses {
            self.excuses.excuse(self.now);
        }
        self.forget_staged();
    }

    /// Replaces the device by another one that has the bytes left by a crash, and limits the histories to what may have
    /// survived.
    fn end_at_once(&mut self, how: Crash) {
        self.tally.crashes += 1;
        let (next, durable) = match how {
            Crash::Kill => (self.device.kill(), self.durable.kill),
            Crash::PowerCut => (self.device.power_cut(), self.durable.power),
        };
        // What the device lost before the store could note that is lost as in a power loss.
        let (how, durable) = if self.may_be_unaware { (Crash::PowerCut, self.durable.power) } else { (how, durable) };
        self.device = Arc::new(next);
        self.note_faults();
        self.tick();
        self.pass_on(how, durable, self.outlives(how));
    }

    /// Limits all histories to what may be on the device after a crash. Entries acknowledged by `durable` must be there
    /// if `is_kept`.
    fn pass_on(&mut self, how: Crash, durable: u64, is_kept: bool) {
        let now = self.tick();
        let lies = self.device.stats().lies();
        self.excuses.restart(now);
        self.losses_before = self.device.stats().sync_losses;
        self.say(|_| format!("{now} {how:?}, durable until {durable}, {lies} lies"));
        for history in self.histories.values_mut() {
            if lies > 0 {
                history.excuse_losses(lies == 1, now);
            } else {
                history.crash(durable, (how == Crash::Kill, is_kept), now);
            }
        }
        self.durable = Durable { kill: now, power: now, ..Durable::default() };
    }

    /// Opens the store on the device. Tries again if reads failed, because another attempt may succeed.
    ///
    /// # Errors
    /// A text that says why the store cannot be opened, unless the device has failed.
    fn open(&mut self) -> Result<(), String> {
        self.device.set_plan(self.prompt());
        let mut outcome = Err("never tried".to_owned());
        let mut bad_reads = 0;
        for _ in 0..OPEN_COUNT_MAX {
            let before = self.device.stats().bad_reads();
            let opened = self.open_store();
            bad_reads = self.device.stats().bad_reads() - before;
            outcome = opened.map_err(|error| error.to_string());
            if outcome.is_ok() {
                break;
            }
        }
        self.device.set_plan(self.plan.clone());
        self.is_misled = bad_reads > 0 && !self.is_dead();
        if self.is_misled {
            self.excuse_misreads(bad_reads);
        }
        match outcome {
            Ok(store) => self.store = Some(store),
            Err(error) if self.faults() == 0 => return Err(format!("the store cannot be opened again: {error}")),
            Err(_) => self.tally.given_up += 1,
        }
        Ok(())
    }

    /// Allows old versions after reads failed while the store was opened, because an unreadable record hides that it
    /// replaced an older one.
    fn excuse_misreads(&mut self, bad_reads: u64) {
        if bad_reads == 0 {
            return;
        }
        let now = self.tick();
        // There are two superblocks. Both are gone if one was lost and the other misread.
        let keeps_invalidations = bad_reads + self.device.stats().lies() < 2;
        self.histories.values_mut().for_each(|history| history.excuse_losses(keeps_invalidations, now));
    }

    fn open_store(&mut self) -> larder_store::Result<Store> {
        let device = self.panics.arm(as_device(&self.device));
        let store = if self.options.policy.layout.keeps_files() {
            Store::open_on_files(device, Arc::clone(&self.directory) as _, &self.options)
        } else {
            Store::open_on(device, &self.options)
        }?;
        self.neighbors.receive_from(&store, &self.options.clock);
        Ok(store)
    }

    /// Returns the faults of this trial without delays, so that operations complete at once.
    fn prompt(&self) -> FaultPlan {
        FaultPlan { slow_transfers_ppm: 0, ..self.plan.clone() }
    }
}

const OPEN_COUNT_MAX: u32 = 5;
