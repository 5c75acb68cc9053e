//! How a connection ends: FINs in either order or at once, TIME-WAIT, and resets (RFC 9293, 3.6).

use nilometer_wire::Time;

use crate::connection::{Connection, Urgent};
use crate::sender::NEVER;
use crate::sequence::wrap;
use crate::state::State;

impl Connection {
    /// The application has written everything: a FIN follows the data.
    pub fn close(&mut self) {
        self.sender.is_spent = false;
        match self.state {
            State::Listen | State::SynSent => self.enter_closed(),
            State::SynReceived => self.sender.has_fin = true,
            State::Established => {
                self.sender.has_fin = true;
                self.state = State::FinWait1;
            }
            State::CloseWait => {
                self.sender.has_fin = true;
                self.state = State::LastAck;
            }
            _ => {}
        }
    }

    /// Ends the connection at once; a reset notifies the peer (RFC 9293, 3.10.5).
    pub fn abort(&mut self) {
        let notifies = matches!(
            self.state,
            State::SynReceived
                | State::Established
                | State::FinWait1
                | State::FinWait2
                | State::CloseWait
        );
        let sequence = wrap(self.sender.initial, self.sender.max);
        let acknowledgement = wrap(self.receiver.initial, self.receiver.next);
        self.enter_closed();
        if notifies {
            self.urgent = Urgent::Reset(sequence, Some(acknowledgement));
        }
    }

    /// The connection no longer exists, and nothing is due.
    pub(crate) fn enter_closed(&mut self) {
        self.state = State::Closed;
        self.urgent = Urgent::Nothing;
        self.sender.deadline = NEVER;
        self.sender.is_paced = false;
        self.sender.is_persisting = false;
        self.receiver.silence();
    }

    /// Our FIN was acknowledged.
    #[inline(never)]
    pub(crate) fn fin_acknowledged(&mut self, now: Time) {
        self.sender.is_paced = false;
        match self.state {
            State::FinWait1 => self.state = State::FinWait2,
            State::Closing => self.enter_time_wait(now),
            State::LastAck => {
                self.enter_closed();
            }
            _ => {}
        }
    }

    /// The peer's FIN arrived, after all of its data.
    #[inline(never)]
    pub(crate) fn fin_received(&mut self, now: Time) {
        match self.state {
            State::Established => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.enter_time_wait(now),
            _ => {}
        }
    }

    fn enter_time_wait(&mut self, now: Time) {
        self.state = State::TimeWait;
        self.sender.is_persisting = false;
        self.sender.deadline = now + self.config.time_wait;
    }

    /// A FIN was repeated: the peer has not seen our last acknowledgement.
    pub(crate) fn restart_time_wait(&mut self, now: Time) {
        if self.state == State::TimeWait {
            self.sender.deadline = now + self.config.time_wait;
        }
    }
}
