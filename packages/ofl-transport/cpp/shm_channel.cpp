#include "shm_channel.hpp"

#include <algorithm>
#include <bit>

#include <poll.h>
#include <sys/socket.h>

#include "clock.hpp"
#include "copy.hpp"

namespace ofl {

namespace {

// A large body is marked piece by piece, so that the reader copies one while the writer copies the next.  Small at first,
// so that the reader starts early.
constexpr std::size_t kFirstPieceBytes = 8192 - kMarkBytes;
constexpr std::size_t kPieceBytes = 32768 - kMarkBytes;

// How long a send looks for room without sleeping: at a time, and in all, which is this and a time for its size.  A peer
// that reads makes room every few microseconds; one that stopped, or reads slower than 4 GB/s for long, is waited for by
// whoever called.
constexpr Nanoseconds kRoomLook = 50'000;
constexpr Nanoseconds kRoomPatience = 2 * kMillisecond;
constexpr std::size_t kPatientBytesPerNs = 4;
// How long `arm` looks for the rest of a frame: its writer is in the middle of a copy.
constexpr Nanoseconds kRestLook = 20'000;
constexpr int kLooksPerClock = 16;  // looks between two readings of the clock
// Looks of `watch`.  A pause follows each: a reader that looks without one takes the line away from the writer in the
// middle of its writes.
constexpr int kLooksPerWatch = 4;

// Copies the bytes of a frame from `from` on.
void copy_out(const Outgoing& frame, std::size_t from, std::span<std::byte> to) noexcept {
  std::size_t skip = from;
  const auto copy = [&](const void* base, std::size_t bytes) noexcept {
    if (skip >= bytes) {
      skip -= bytes;
      return;
    }
    const std::size_t here = std::min(bytes - skip, to.size());
    copy_bytes(to.data(), static_cast<const std::byte*>(base) + skip, here);
    to = to.subspan(here);
    skip = 0;
  };
  copy(&frame.header(), sizeof(wire::FrameHeader));
  for (const Part& part : frame.parts()) {
    if (to.empty()) return;
    copy(part.base, part.bytes);
  }
}

// The reader looks at the first line all the time and takes it away while we write it, so it is written last and at once.
void fill_record(const Outgoing& frame, std::span<std::byte> record) noexcept {
  if (record.size() > kFirstLineBytes) {
    copy_out(frame, frame.sent() + kFirstLineBytes, record.subspan(kFirstLineBytes));
    record = record.first(kFirstLineBytes);
  }
  copy_out(frame, frame.sent(), record);
}

template <typename Found>
bool look_for(Nanoseconds span, Found found) noexcept {
  const Nanoseconds until = now_ns() + span;
  do {
    for (int i = 0; i < kLooksPerClock; ++i) {
      if (found()) return true;
      relax();
    }
  } while (now_ns() < until);
  return false;
}

}  // namespace

ShmChannel::ShmChannel(ShmRegion region, UniqueFd control, bool looks) noexcept
    : region_(std::move(region)),
      control_(std::move(control)),
      ring_bytes_(region_.outgoing().size()),
      looks_(looks),
      writer_(region_.outgoing(), region_.theirs().taken),
      reader_(region_.incoming(), region_.ours().taken) {}

Capabilities ShmChannel::capabilities() const noexcept {
  // Placement: the receiving CPU copies from the ring to where the body belongs.
  return {.parts_max = kPartsMax, .registered_memory = false, .direct_placement = true, .one_sided = false};
}

Progress ShmChannel::fail(const char* clause) noexcept {
  const char* none = nullptr;
  fault_.compare_exchange_strong(none, clause, std::memory_order_relaxed);
  return Progress::failed;
}

// A bell that does not fit into the socket is not needed: others wait there.  An end of the peer is found by receive.
void ShmChannel::ring_bell() noexcept {
  const char bell = 0;
  static_cast<void>(!::send(control_.get(), &bell, sizeof bell, MSG_DONTWAIT | MSG_NOSIGNAL));
}

// ---- the sending side

bool ShmChannel::may_send() const noexcept {
  // Pairs with the release in the peer's shut_down.  A state that no end ever has counts as closed too.
  return stage_.load(std::memory_order_relaxed) == Stage::open && fault_.load(std::memory_order_relaxed) == nullptr &&
         load_relaxed(region_.theirs().state) <= static_cast<std::uint64_t>(ShmState::attached);
}

Progress ShmChannel::send(Outgoing& frame) noexcept {
  std::size_t piece = kFirstPieceBytes;
  Nanoseconds patience = 0;
  if (looks_) patience = kRoomPatience + static_cast<Nanoseconds>((frame.size() - frame.sent()) / kPatientBytesPerNs);
  while (frame.sent() < frame.size()) {
    if (!may_send()) return Progress::failed;
    std::span<std::byte> record;
    if (!find_room(std::min(piece, frame.size() - frame.sent()), record, patience)) {
      if (writer_.fault() != nullptr) return fail(writer_.fault());
      return may_send() ? Progress::blocked : Progress::failed;
    }
    fill_record(frame, record);
    writer_.publish(record.size());
    frame.advance(record.size());
    wake_reader();
    piece = kPieceBytes;
  }
  return Progress::done;
}

bool ShmChannel::find_room(std::size_t wanted, std::span<std::byte>& record, Nanoseconds& patience) noexcept {
  record = writer_.room(wanted);
  if (record.empty() && writer_.fault() == nullptr) {
    if (!look_for_room(wanted, record, patience)) {
      want_room(writer_.position() - ring_bytes_ / 2);
      full_fence();  // pairs with give_back: the peer sees the wish, or we see what it has taken
      record = writer_.room(wanted);
    }
  }
  if (record.empty()) return false;
  if (room_wanted_.load(std::memory_order_relaxed) != 0) want_room(0);
  return true;
}

bool ShmChannel::look_for_room(std::size_t wanted, std::span<std::byte>& record, Nanoseconds& patience) noexcept {
  if (patience <= 0) return false;
  const Nanoseconds begun = now_ns();
  const auto found = [&]() noexcept {
    record = writer_.room(wanted);
    return !record.empty() || !may_send() || writer_.fault() != nullptr;
  };
  const bool ended = look_for(std::min(kRoomLook, patience), found);
  patience -= now_ns() - begun;
  return ended;
}

void ShmChannel::want_room(std::uint64_t taken) noexcept {
  room_wanted_.store(taken, std::memory_order_relaxed);
  store_relaxed(region_.ours().room_wanted, taken);
}

void ShmChannel::wake_reader() noexcept {
  full_fence();  // pairs with arm: the reader sees the record, or we see that it sleeps
  const std::uint64_t sleeps = load_relaxed(region_.theirs().sleeps);
  if (sleeps == sleeps_rung_) return;
  sleeps_rung_ = sleeps;
  ring_bell();
}

// ---- the receiving side

Progress ShmChannel::take(Inbox& inbox, std::size_t budget, Until until) noexcept {
  while (budget > 0) {
    const std::span<const std::byte> bytes = reader_.front();
    if (bytes.empty()) return reader_.fault() != nullptr ? fail(reader_.fault()) : Progress::blocked;
    if (!frames_.take(inbox, bytes)) return fail(frames_.fault());
    give_back();
    if (stage_.load(std::memory_order_relaxed) == Stage::down) return Progress::closed;
    if (until == Until::frame_whole && !frames_.mid_frame()) return Progress::done;
    budget -= std::min(budget, bytes.size());
  }
  return Progress::done;
}

void ShmChannel::give_back() noexcept {
  const std::uint64_t before = reader_.position();
  reader_.release();
  const std::uint64_t after = reader_.position();
  if ((before ^ after) < ring_bytes_ / 8) return;
  full_fence();  // pairs with find_room: the writer sees what we have taken, or we see its wish
  const std::uint64_t wanted = load_relaxed(region_.theirs().room_wanted);
  if (wanted == 0 || wanted > after || wanted == room_rung_) return;
  room_rung_ = wanted;
  ring_bell();
}

Progress ShmChannel::poll(Inbox& inbox, std::size_t budget) noexcept {
  if (fault() != nullptr) return Progress::failed;
  if (stage_.load(std::memory_order_relaxed) == Stage::down) return Progress::closed;
  return take(inbox, budget, Until::frame_whole);
}

void ShmChannel::watch() noexcept {
  for (int i = 0; i < kLooksPerWatch && !readable_now(); ++i) relax();
}

Progress ShmChannel::receive(Inbox& inbox, std::size_t budget) noexcept {
  if (fault() != nullptr) return Progress::failed;
  if (stage_.load(std::memory_order_relaxed) == Stage::down) return Progress::closed;
  Progress progress = take(inbox, budget, Until::empty);
  if (progress != Progress::blocked || !hung_up()) return progress;
  progress = take(inbox, budget, Until::empty);  // what the peer wrote before its end
  return progress == Progress::blocked ? Progress::closed : progress;
}

bool ShmChannel::hung_up() noexcept {
  store_relaxed(region_.ours().heartbeat_ns, static_cast<std::uint64_t>(now_ns()));
  pollfd entry{control_.get(), POLLIN | POLLRDHUP, 0};
  if (::poll(&entry, 1, 0) <= 0) return false;
  if ((entry.revents & ~POLLIN) != 0) return true;
  // Another thread of ours may sleep until a bell says that there is room: that one is not ours to take.
  if (room_wanted_.load(std::memory_order_relaxed) == 0) silence_bells();
  return false;
}

void ShmChannel::silence_bells() noexcept {
  char bells[64];
  static_cast<void>(!::recv(control_.get(), bells, sizeof bells, MSG_DONTWAIT));
}

bool ShmChannel::arm(Arm what) noexcept {
  if (what == Arm::all) expect_rest();
  silence_bells();  // old ones: what they told is seen below
  store_relaxed(region_.ours().heartbeat_ns, static_cast<std::uint64_t>(now_ns()));
  store_relaxed(region_.ours().sleeps, ++sleeps_);
  full_fence();  // pairs with wake_reader: the writer sees that we sleep, or we see its record
  const bool something = what == Arm::all ? readable_now() : reader_.fault() != nullptr;
  return !something && !room_came() && stage_.load(std::memory_order_relaxed) != Stage::down;
}

bool ShmChannel::room_came() const noexcept {
  const std::uint64_t wanted = room_wanted_.load(std::memory_order_relaxed);
  return wanted != 0 && load_relaxed(region_.theirs().taken) >= wanted;
}

void ShmChannel::expect_rest() noexcept {
  if (!looks_ || !frames_.mid_frame() || frames_.bytes_received() == expected_at_) return;
  expected_at_ = frames_.bytes_received();  // once: a peer that stopped there costs no more
  look_for(kRestLook, [this]() noexcept { return readable_now(); });
}

// ---- the end

void ShmChannel::shut_down() noexcept {
  stage_.store(Stage::down, std::memory_order_relaxed);
  // Pairs with may_send of the peer.
  store_release(region_.ours().state, static_cast<std::uint64_t>(ShmState::closed));
  ::shutdown(control_.get(), SHUT_RDWR);
}

void ShmChannel::end_sending() noexcept {
  Stage open = Stage::open;
  stage_.compare_exchange_strong(open, Stage::sending_ended, std::memory_order_relaxed);
  ::shutdown(control_.get(), SHUT_WR);
}

}  // namespace ofl
