// One connection of a client: open calls, where their replies land, and a keeper thread for heartbeats.
//
// Who reads the wire: the thread that waits for a reply, itself, so that a reply costs no hand-off between threads.  It
// looks for `spin` before it sleeps.  The keeper wakes once a heartbeat interval (or a quarter of the loss limit, if that is
// shorter) and when the peer hangs up, never for data; it reads only while nobody waits.
//
// Life of a call: free -> open -> done -> free (waited for), or open -> free (cancelled), or open -> quarantined -> free:
// cancelled while a one-sided write of the peer may still be under way to its memory.
//
// Whose memory: a call's until it ends, or until `alive` is false.  Whatever ends a call goes through `end_call`, which
// drops a body on its way there; and the connection is lost under receive_mutex_, after which nothing is received.
//
// Lock order: send_mutex_, then receive_mutex_, then state_mutex_ or what a Memory locks.  No lock is held across a blocking
// system call except send_mutex_ in `submit`, which the keeper only tries.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>

#include "backend.hpp"
#include "body.hpp"
#include "gate.hpp"
#include "outbox.hpp"
#include "socket.hpp"
#include "status.hpp"

namespace ofl {

struct ClientOptions {
  std::string host;
  std::string bind;  // empty: the kernel chooses
  std::string service;
  std::optional<std::string> key_file;  // none: no authentication
  std::uint16_t port = 0;
  std::uint16_t version_min = 0;
  std::uint16_t version_max = 0;
  wire::Transport transport = wire::Transport::tcp;
  std::uint32_t frame_bytes_max = 0;
  Nanoseconds heartbeat = 0;
  Nanoseconds loss = 0;
  Nanoseconds spin = 0;
  std::int32_t* abandoned = nullptr;  // not 0: the caller wants no connection any more; nullptr: it never says so
};

// What both ends agreed on.
struct Agreement {
  std::uint64_t boot_nonce = 0;
  std::uint32_t frame_bytes_max = 0;
  std::uint32_t calls_max = 0;
  std::uint16_t version = 0;
  bool authenticated = false;
  std::string peer_address;
  std::string local_address;
};

// Connects, negotiates, links; nothing survives a failure.
Outcome open_channel(const ClientOptions& options, Nanoseconds deadline, std::unique_ptr<Channel>& channel,
                     Agreement& agreement);

// Where one call's reply goes, and what its request may still read after `submit`.
struct CallMemory {
  std::shared_ptr<Memory> into;
  std::size_t offset = 0;
  std::size_t bytes = 0;
  std::shared_ptr<Memory> lent;
};

class Client final : private Inbox {
 public:
  Client(std::unique_ptr<Channel> channel, const ClientOptions& options, const Agreement& agreement);
  ~Client();

  Outcome register_memory(Memory& memory);
  Status submit(std::span<const Part> parts, const CallMemory& memory, Nanoseconds deadline, std::uint64_t& sequence);
  Status wait(std::uint64_t sequence, Nanoseconds deadline, std::span<const std::byte>& body);
  Status cancel(std::uint64_t sequence);
  Status settled(std::uint64_t sequence, Nanoseconds deadline);
  bool alive() const noexcept { return !lost_.load(std::memory_order_acquire); }
  std::string reason();
  std::string describe() const { return wire_; }
  void close();

  // True in a child of fork(): only `abandon` is allowed, which closes the child's descriptors and leaves the rest,
  // because the keeper does not exist here and the connection is the parent's.
  bool foreign() const noexcept;
  void abandon() noexcept;

 private:
  enum class CallState : std::uint8_t { free, open, done, quarantined };
  struct Call {
    std::uint64_t sequence = 0;
    CallState state = CallState::free;
    std::uint32_t body_bytes = 0;
    Body large;  // a reply over the slot's share of the arena
    CallMemory memory;
    Claim claim;  // of memory.into
  };

  static constexpr std::size_t kSlotBytes = 4096;
  // Slots lie one cache line more than a page apart: caches choose a place by the address within a page, so the first lines
  // of the slots would drive each other out.
  static constexpr std::size_t kSlotStride = kSlotBytes + 64;
  // With no other call open, a caller goes round these alone, which stay in the nearest cache.
  static constexpr std::uint32_t kNearSlots = 8;
  static constexpr std::size_t kReceiveBudget = 4U << 20;  // per turn, so that deadlines are looked at
  static constexpr Nanoseconds kSpinTurn = kMillisecond / 5;  // the longest that a looking waiter keeps the keeper out

  Landing landing(const wire::FrameHeader& header) noexcept override;
  void completed(const wire::FrameHeader& header) noexcept override;
  const char* placed(std::uint32_t slot, std::uint64_t bytes) noexcept override;
  Landing reply_landing(const wire::FrameHeader& header) noexcept;

  // receive_mutex_ held:
  std::byte* memory_of(Call& call) noexcept;
  Call* find(std::uint64_t sequence) noexcept;
  Status check_memory(const CallMemory& memory) const noexcept;
  Status overlap(const CallMemory& memory) const noexcept;
  void end_call(Call& call) noexcept;
  void settle_lent() noexcept;
  void hand_out(Call& call, std::span<const std::byte>& body) noexcept;
  bool receive_now(bool whole) noexcept;  // false once lost
  void lose(std::string_view reason) noexcept;
  template <typename Done>
  Status look(std::unique_lock<std::mutex>& lock, Nanoseconds deadline, Done done) noexcept;

  // send_mutex_ held:
  Status open_call(const CallMemory& memory, std::uint64_t& sequence);
  Status begin_or_resume(const CallMemory& memory, std::uint64_t& sequence);
  Status send_request(Outgoing& frame, Nanoseconds deadline);
  Status wait_sendable(Nanoseconds deadline);
  // No lock held:
  bool frame_stopped();
  void send_control(wire::FrameType type, std::uint64_t sequence);
  wire::PlacementRecord record_of(const CallMemory& memory) const noexcept;
  // receive_mutex_ not held:
  void give_up(std::string_view reason) noexcept;
  void give_up_sending() noexcept;
  void cut(std::string_view reason) noexcept;
  Status lost_status() const noexcept;  // OFL_CLOSED when this side did it

  void keep();
  void beat(Nanoseconds now);
  void judge(Nanoseconds now, bool hung_up);
  bool keeper_wait(Nanoseconds until, bool& hung_up);

  std::unique_ptr<Channel> channel_;  // gone once closed
  const Agreement agreement_;
  const std::string wire_;
  const Nanoseconds heartbeat_;
  const Nanoseconds loss_;
  const Nanoseconds spin_;
  const bool one_sided_;
  Registrar& registrar_;
  const std::uint32_t fork_generation_;

  std::mutex send_mutex_;
  // A request that a signal stopped half way, until it is submitted again or cancelled: nothing else may be sent.
  std::uint64_t stopped_sequence_ = 0;  // 0: none
  std::size_t stopped_sent_ = 0;
  Outbox outbox_;  // control frames only

  std::mutex receive_mutex_;
  std::array<Call, wire::kSlots> calls_;
  std::unique_ptr<std::byte[]> arena_;  // kSlotStride for each slot
  std::uint32_t open_calls_ = 0;
  std::uint32_t placed_calls_ = 0;  // of those: with memory of their own
  std::uint64_t next_sequence_ = 1;
  bool waiting_ = false;
  Body taken_;  // the large body that the last wait handed out
  std::byte close_text_[wire::kTextBytesMax] = {};
  std::uint64_t bytes_seen_ = 0;

  std::mutex state_mutex_;
  bool cut_ = false;
  Clause reason_;
  Gate gate_;

  std::atomic<bool> lost_{false};  // written under receive_mutex_
  std::atomic<Nanoseconds> last_sent_;
  std::atomic<Nanoseconds> last_heard_;
  UniqueFd wake_;
  std::thread keeper_;
};

}  // namespace ofl
