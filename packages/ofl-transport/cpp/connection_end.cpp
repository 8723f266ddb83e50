// How a server's connection ends: with a word, by being cut, and what is announced of it.

#include "connection.hpp"

namespace ofl {

using wire::FrameType;

namespace {

constexpr Nanoseconds kDrain = kSecond;

}  // namespace

void Connection::finish() noexcept {
  bool was_open = false;
  {
    const std::scoped_lock lock(mutex_);
    was_open = phase_ == Phase::open;
    phase_ = Phase::ended;
    outbox_.clear();
  }
  // Now, and not when the last request in the queue lets go of us: the client sees the end, and no send reads lent memory any
  // more.  Over a socket one that said goodbye may still take what was sent before.
  if (!goodbye_ || channel_->capabilities().one_sided) channel_->shut_down();
  if (!was_open) return;
  announce_end(end_reason_);
}

void Connection::announce_end(std::string_view reason) noexcept {
  shared_.open_connections.fetch_sub(1, std::memory_order_relaxed);
  shared_.counters.add(Counter::disconnects);
  Event& event = farewell_.front();
  event.received = now_ns();
  try {
    event.text = reason;
  } catch (...) {
    event.text = "out of memory";  // fits into a string without any
  }
  shared_.events.push(std::move(farewell_));
}

void Connection::drain_locked(Nanoseconds now) {
  phase_ = Phase::draining;
  phase_ends_ = now + kDrain;
  reading_.store(true, std::memory_order_release);
  if (outbox_.empty()) channel_->end_sending();
}

bool Connection::disconnect(const std::string& reason) {
  const std::string words = wire::printable(reason);
  {
    const std::scoped_lock lock(mutex_);
    if (phase_ != Phase::open) return false;
    const Part part{words.data(), words.size()};
    say_locked(FrameType::close, {&part, 1});
    drain_locked(now_ns());
  }
  announce_end(words);
  return true;
}

void Connection::hang_up(std::string_view reason) noexcept {
  const std::scoped_lock lock(mutex_);
  if (phase_ == Phase::open) {
    const Part part{reason.data(), reason.size()};
    Outgoing frame(wire::make_header(FrameType::close, 0, reason.size()), {&part, 1});
    if (outbox_.empty()) static_cast<void>(channel_->send(frame));
  }
  phase_ = Phase::ended;
  channel_->shut_down();
}

}  // namespace ofl
