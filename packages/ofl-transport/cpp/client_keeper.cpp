// The client's keeper thread: heartbeats, hang-ups and silence; and closing, which ends it.

#include <algorithm>
#include <new>

#include <poll.h>

#include "client.hpp"

namespace ofl {

namespace {

// Reads at most, after the peer has hung up: more than what a socket holds.
constexpr int kLastReads = 16;

}  // namespace

void Client::keep() {
  bool hung_up = false;
  // Well below half of loss_, or every turn would look as if this process had been stopped.
  const Nanoseconds turn = std::min(heartbeat_, loss_ / 4);
  Nanoseconds last_turn = now_ns();
  while (keeper_wait(last_turn + turn, hung_up)) {
    const Nanoseconds now = now_ns();
    // Silence counts only while this process runs: after being stopped ourselves the peer gets its chance.
    if (now - last_turn > loss_ / 2) last_heard_.store(now, std::memory_order_relaxed);
    last_turn = now;
    try {
      beat(now);
    } catch (const std::bad_alloc&) {  // no memory for a heartbeat: the next turn may have some
    }
    judge(now, hung_up);
    if (!alive()) return;
  }
}

// Sleeps until `until`, the peer's hang-up, or our close.  False: close.
bool Client::keeper_wait(Nanoseconds until, bool& hung_up) {
  pollfd entries[2] = {{wake_.get(), POLLIN, 0}, {hung_up ? -1 : channel_->hangup_descriptor(), POLLRDHUP, 0}};
  const timespec left = remaining(until);
  ::ppoll(entries, 2, &left, nullptr);
  // A waiter sees the end of the stream itself; polling for it again would only spin.
  if (entries[1].revents != 0) hung_up = true;
  return entries[0].revents == 0;
}

void Client::beat(Nanoseconds now) {
  const bool quiet = now - last_sent_.load(std::memory_order_relaxed) >= heartbeat_ / 2;
  const std::unique_lock lock(send_mutex_, std::try_to_lock);
  if (!lock || stopped_sequence_ != 0) return;  // a request is on its way: that is sign enough
  if (quiet && outbox_.empty()) outbox_.append(Outgoing(wire::make_header(wire::FrameType::heartbeat, 0, 0), {}));
  if (outbox_.empty()) return;
  const Progress progress = outbox_.flush(*channel_);
  if (progress == Progress::done) last_sent_.store(now, std::memory_order_relaxed);
  if (progress == Progress::failed) give_up_sending();
}

// `hung_up` is told once, and the end of the stream lies behind all that came before it.
void Client::judge(Nanoseconds now, bool hung_up) {
  const std::scoped_lock lock(receive_mutex_);
  for (int reads = hung_up ? kLastReads : 1; reads > 0 && !waiting_ && receive_now(true);) --reads;
  const Nanoseconds silence = now - last_heard_.load(std::memory_order_relaxed) - coarse_tick();  // at least
  if (silence <= loss_ || channel_->readable_now()) return;
  lose(Clause("no sign of life from the peer for ", std::to_string(loss_ / kMillisecond), " ms").text());
}

void Client::close() {
  if (!gate_.close()) return;
  if (alive()) {
    const std::unique_lock lock(send_mutex_, std::try_to_lock);
    if (lock && outbox_.empty() && stopped_sequence_ == 0) {
      Outgoing goodbye(wire::make_header(wire::FrameType::close, 0, 0), {});
      static_cast<void>(channel_->send(goodbye));  // a courtesy; the end of the connection says the same
    }
  }
  give_up("closed by this side");
  const std::uint64_t one = 1;
  static_cast<void>(!::write(wake_.get(), &one, sizeof one));
  gate_.wait_empty();
  keeper_.join();
  abandon();
}

void Client::abandon() noexcept {
  channel_.reset();
  wake_.reset();
}

}  // namespace ofl
