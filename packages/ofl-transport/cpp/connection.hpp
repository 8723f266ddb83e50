// One connection of a server, from its first byte to its last: phases, limits, and what is open.
//
// Phases: negotiating -> proving -> linking -> open -> draining -> ended; proving only with a key, linking only where
// another wire than the socket carries the data.  Draining discards input for a short while after a refusal or a close
// frame, because closing a socket with unread input would destroy the text on its way.
//
// Threads: the `on_*`, `poll`, `arm` and `check_time` functions belong to the thread that leads the server's loop; the
// others may be called by any.  `mutex_` guards everything that both touch; it is a leaf lock, held across non-blocking
// sends only.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "backend.hpp"
#include "link.hpp"
#include "outbox.hpp"
#include "server_shared.hpp"
#include "socket_channel.hpp"
#include "status.hpp"

namespace ofl {

// What the loop shall poll for.
struct Interest {
  bool read = true;
  bool write = false;
  bool operator==(const Interest&) const = default;
};

class Connection final : public std::enable_shared_from_this<Connection>, private Inbox {
 public:
  Connection(ServerShared& shared, std::uint64_t id, std::unique_ptr<SocketChannel> control, wire::Transport listener,
             Address address, std::string peer, Nanoseconds now);

  // The loop's side.  False: the connection has ended, and `end_reason` says why.
  bool on_readable();
  bool on_writable();
  bool poll();
  void watch() noexcept { channel_->watch(); }
  // True: its descriptor does not tell of all that is here.
  bool reads_late() const noexcept { return channel_->low_water() > 1; }
  bool arm(Arm what) { return channel_->arm(what); }
  bool check_time(Nanoseconds now, bool forgive_silence) noexcept;
  Nanoseconds due(Nanoseconds now);
  const std::string& end_reason() const noexcept { return end_reason_; }
  // Counts and announces the end of a connection that was open.  Called once, by the loop, and stops later replies.
  void finish() noexcept;
  // True once after another wire took over: the descriptor is another one from now on.
  bool take_switched() noexcept { return std::exchange(switched_, false); }
  bool cheap_to_poll() const noexcept { return channel_->cheap_to_poll(); }

  // Whatever became of it since.
  bool was_open() const noexcept { return announced_; }
  int hangup_descriptor() const noexcept { return channel_->hangup_descriptor(); }

  // Any thread.
  std::uint64_t id() const noexcept { return id_; }
  int descriptor() const noexcept { return channel_->descriptor(); }
  std::uint32_t epoll_events(const Interest& interest) const noexcept;
  bool unopened();
  Interest interest();
  Status reply(std::uint64_t sequence, std::span<const Part> parts, Memory* lent);
  // The consumer takes a request: false if it was cancelled meanwhile.  `resumed`: reading goes on that had stopped.
  bool take_request(std::uint64_t sequence, std::size_t bytes, bool& resumed);
  // The same for a request that never was in the queue.
  bool holds(std::uint64_t sequence) const noexcept {
    return phase_.load(std::memory_order_acquire) == Phase::open && open_[wire::slot_of(sequence).index].is(sequence);
  }
  void reap();
  // Says goodbye with a reason and drains; false if there is nothing to end.
  bool disconnect(const std::string& reason);
  void hang_up(std::string_view reason) noexcept;

 private:
  enum class Phase : std::uint8_t { negotiating, proving, linking, open, draining, ended };
  // The loop alone makes a free slot an open one, without a lock; whoever frees it again holds mutex_.  `sequence` is
  // written last both times (release) and looked at first (acquire), so that `where` passes from one to the other.
  struct OpenCall {
    std::atomic<std::uint64_t> sequence{0};  // 0: free
    std::optional<wire::PlacementRecord> where;

    void begin(std::uint64_t number, const std::optional<wire::PlacementRecord>& wanted) noexcept {
      if (wanted) where.emplace(*wanted);
      sequence.store(number, std::memory_order_release);
    }
    void end() noexcept {
      where.reset();
      sequence.store(0, std::memory_order_release);
    }
    bool is(std::uint64_t number) const noexcept { return sequence.load(std::memory_order_acquire) == number; }
  };

  Landing landing(const wire::FrameHeader& header) noexcept override;
  void completed(const wire::FrameHeader& header) noexcept override;
  void take_frame(const wire::FrameHeader& header);
  // What throws in there ends the connection: what it was about is half done.
  template <typename Function>
  bool contained(Function&& function) noexcept;
  Landing negotiation_landing(wire::FrameType type, std::uint32_t body_bytes) noexcept;
  Landing request_landing(const wire::FrameHeader& header) noexcept;
  void request_completed(const wire::FrameHeader& header);
  void enqueue(Event&& event);
  void cancel_completed(const wire::FrameHeader& header);
  bool after_receiving(Progress progress) noexcept;
  bool judge_received(Progress progress);
  bool judge_time(Nanoseconds now, bool forgive_silence);

  void negotiate();
  void prove();
  void link(std::uint32_t body_bytes);
  bool take_over();
  void accept();
  void announce_start();
  void refuse(wire::RefuseCode code, const std::string& text);
  std::string refusal(const wire::ConnectBody& offer, wire::RefuseCode& code);
  bool serves(wire::Transport transport) const noexcept;
  bool full() const noexcept;
  std::string full_text() const;

  bool end(std::string_view reason) noexcept;
  bool end_broken();
  void announce_end(std::string_view reason) noexcept;
  bool registered(const Memory& lent) const noexcept;
  std::uint32_t room_of(const std::optional<wire::PlacementRecord>& where) const noexcept;
  // mutex_ held:
  Progress send_locked(Outgoing& frame, const wire::PlacementRecord* where = nullptr);
  void say_locked(wire::FrameType type, std::span<const Part> parts, std::uint64_t sequence = 0);
  void drain_locked(Nanoseconds now);

  ServerShared& shared_;
  const std::uint64_t id_;
  const wire::Transport listener_;
  const Address address_;
  const std::string peer_;
  SocketChannel* control_;            // the channel until another wire takes over
  std::unique_ptr<Channel> channel_;  // replaced once, by the loop, before the connection is open

  // The loop's own.
  std::string end_reason_;
  Body body_;
  alignas(8) std::array<std::byte, sizeof(wire::ConnectBody)> small_{};  // connect, proof or link frame
  wire::ConnectBody offer_{};
  wire::ChallengeBody challenge_{};
  std::unique_ptr<Link> linked_;  // between our link frame and the new wire
  std::uint64_t bytes_seen_ = 0;
  std::uint64_t frames_ = 0;
  std::uint64_t frames_seen_ = 0;
  Nanoseconds last_heard_;
  Nanoseconds completed_at_ = 0;  // a request among the bytes at hand; 0: none
  Nanoseconds frame_begun_ = 0;  // 0: between frames
  bool goodbye_ = false;
  bool announced_ = false;
  std::list<Event> farewell_;  // the event of our end, made with that of our start: it must not need memory then
  bool switched_ = false;
  std::uint16_t version_ = 0;
  std::uint32_t frame_bytes_max_ = 0;
  Nanoseconds heartbeat_ = 0;
  Nanoseconds loss_ = 0;

  std::atomic<bool> reading_{true};   // false: undelivered requests, or their bytes, are too many
  std::atomic<bool> pending_{false};  // the outbox holds something

  std::mutex mutex_;
  std::atomic<Phase> phase_{Phase::negotiating};  // written under mutex_; the loop reads it without
  Outbox outbox_;
  std::array<OpenCall, wire::kSlots> open_{};
  std::atomic<std::uint32_t> open_calls_{0};
  std::size_t queued_bytes_ = 0;  // of requests that the consumer has not taken
  std::size_t queued_requests_ = 0;
  std::atomic<bool> cut_off_{false};  // replies were not read and the outbox is full
  Nanoseconds last_sent_;
  Nanoseconds phase_ends_;  // of every phase before open, and of draining
};

}  // namespace ofl
