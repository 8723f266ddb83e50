// One connection of a client: open calls, their landing slots, and a keeper thread for heartbeats.
//
// Who reads the socket: the thread that waits for a reply, itself, so that a reply costs no hand-off between threads.
// The keeper wakes once a heartbeat interval and when the peer hangs up, never for data; it reads only while nobody
// waits.
//
// Lock order: send_mutex_, then receive_mutex_, then state_mutex_.  No lock is held across a blocking system call
// except send_mutex_ in `submit`, which the keeper only tries.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "backend.hpp"
#include "outbox.hpp"
#include "socket.hpp"
#include "status.hpp"

namespace ofl {

struct ClientOptions {
  std::string host;
  std::string bind;  // empty: the kernel chooses
  std::string service;
  std::uint16_t port = 0;
  std::uint16_t version_min = 0;
  std::uint16_t version_max = 0;
  std::uint32_t frame_bytes_max = 0;
  Nanoseconds heartbeat = 0;
  Nanoseconds loss = 0;
};

// What both ends agreed on.
struct Agreement {
  std::uint64_t boot_nonce = 0;
  std::uint32_t frame_bytes_max = 0;
  std::uint32_t calls_max = 0;
  std::uint16_t version = 0;
  std::string peer_address;
  std::string local_address;
};

// Connects and negotiates; nothing survives a failure.
Outcome open_channel(const ClientOptions& options, Nanoseconds deadline, std::unique_ptr<Channel>& channel,
                     Agreement& agreement);

class Client final : private Inbox {
 public:
  Client(std::unique_ptr<Channel> channel, const ClientOptions& options, const Agreement& agreement);
  ~Client();

  Status submit(std::span<const Part> parts, Nanoseconds deadline, std::uint64_t& sequence);
  Status wait(std::uint64_t sequence, Nanoseconds deadline, std::span<const std::byte>& body);
  Status cancel(std::uint64_t sequence);
  bool alive() const noexcept { return !lost_.load(std::memory_order_acquire); }
  std::string reason();
  void close();

  // True in a child of fork(): only `abandon` is allowed, which closes the child's descriptors and leaves the rest,
  // because the keeper does not exist here and the connection is the parent's.
  bool foreign() const noexcept;
  void abandon() noexcept;

 private:
  class Use;  // counts a caller in, or finds the client closed
  enum class CallState : std::uint8_t { free, open, done };
  struct Call {
    std::uint64_t sequence = 0;
    CallState state = CallState::free;
    std::uint32_t body_bytes = 0;
    std::unique_ptr<std::byte[]> large;  // a reply over the slot's share of the arena
  };

  static constexpr std::size_t kSlotBytes = 4096;
  static constexpr std::size_t kReceiveBudget = 4U << 20;  // per turn, so that deadlines are looked at

  Landing landing(const wire::FrameHeader& header) noexcept override;
  void completed(const wire::FrameHeader& header) noexcept override;
  Landing reply_landing(const wire::FrameHeader& header) noexcept;

  std::byte* memory_of(Call& call) noexcept;
  Call* find(std::uint64_t sequence) noexcept;
  Status open_call(std::uint64_t& sequence);
  void end_call(Call& call) noexcept;
  Status send_request(Outgoing& frame, Nanoseconds deadline);
  Status wait_sendable(Nanoseconds deadline);
  void send_control(wire::FrameType type, std::uint64_t sequence);
  bool receive_now() noexcept;  // receive_mutex_ held; false once lost
  void lose(const std::string& reason) noexcept;
  Status lost_status() noexcept;  // OFL_CLOSED when this side did it

  void keep();
  void beat(Nanoseconds now);
  void judge(Nanoseconds now);
  bool keeper_wait(Nanoseconds until, bool& hung_up);

  std::unique_ptr<Channel> channel_;  // gone once closed
  const Agreement agreement_;
  const Nanoseconds heartbeat_;
  const Nanoseconds loss_;
  const std::uint32_t fork_generation_;

  std::mutex send_mutex_;
  Outbox outbox_;  // control frames only

  std::mutex receive_mutex_;
  std::array<Call, wire::kSlots> calls_;
  std::unique_ptr<std::byte[]> arena_;  // kSlotBytes for each slot, registered with the channel
  Region region_;
  std::uint32_t open_calls_ = 0;
  std::uint64_t next_sequence_ = 1;
  bool waiting_ = false;
  std::unique_ptr<std::byte[]> taken_;  // the large body that the last wait handed out
  char close_text_[wire::kTextBytesMax + 1] = {};
  std::uint64_t bytes_seen_ = 0;

  std::mutex state_mutex_;
  std::condition_variable state_changed_;
  std::string reason_;
  int users_ = 0;
  bool closed_ = false;

  std::atomic<bool> lost_{false};
  std::atomic<Nanoseconds> last_sent_;
  std::atomic<Nanoseconds> last_heard_;
  UniqueFd wake_;
  std::thread keeper_;
};

}  // namespace ofl
