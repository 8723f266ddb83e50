// One connection of a server, from its first byte to its last: phases, limits, and what is open.
//
// Phases: negotiating -> open -> draining -> ended.  Draining discards input for a short while after a refusal or a
// close frame, because closing a socket with unread input would destroy the text on its way.
//
// Threads: the `on_*` and `check_time` functions belong to the thread that leads the server's loop; the others may be
// called by any.  `mutex_` guards everything that both touch; it is a leaf lock, held across non-blocking sends only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "backend.hpp"
#include "outbox.hpp"
#include "server_shared.hpp"
#include "status.hpp"

namespace ofl {

// What the loop shall poll for.
struct Interest {
  bool read = true;
  bool write = false;
  bool operator==(const Interest&) const = default;
};

class Connection final : private Inbox {
 public:
  Connection(ServerShared& shared, std::uint64_t id, std::unique_ptr<Channel> channel, std::string peer, Nanoseconds now);

  // The loop's side.  False: the connection has ended, and `end_reason` says why.
  bool on_readable();
  bool on_writable();
  bool check_time(Nanoseconds now, bool forgive_silence);
  Nanoseconds due(Nanoseconds now);
  const std::string& end_reason() const noexcept { return end_reason_; }
  // Counts and announces the end of a connection that was open.  Called once, by the loop, and stops later replies.
  void finish();

  // Any thread.
  std::uint64_t id() const noexcept { return id_; }
  int descriptor() const noexcept { return channel_->descriptor(); }
  bool unopened();
  Interest interest();
  Status reply(std::uint64_t sequence, std::span<const Part> parts);
  // The consumer takes a request: false if it was cancelled meanwhile.
  bool take_request(std::uint64_t sequence, std::size_t bytes);
  // Says goodbye with a reason and drains; false if there is nothing to end.
  bool disconnect(const std::string& reason);
  void hang_up(const std::string& reason) noexcept;

 private:
  enum class Phase : std::uint8_t { negotiating, open, draining, ended };

  Landing landing(const wire::FrameHeader& header) noexcept override;
  void completed(const wire::FrameHeader& header) noexcept override;
  Landing request_landing(const wire::FrameHeader& header) noexcept;
  void request_completed(const wire::FrameHeader& header);

  void negotiate();
  void accept(const wire::ConnectBody& offer, std::uint16_t version);
  void refuse(wire::RefuseCode code, const std::string& text);
  std::string refusal(const wire::ConnectBody& offer, wire::RefuseCode& code);

  bool end(const std::string& reason);
  bool end_broken();
  void announce_end(const std::string& reason);
  // mutex_ held:
  Progress send_locked(Outgoing& frame);
  void say_locked(wire::FrameType type, std::span<const Part> parts);
  void drain_locked(Nanoseconds now);
  bool reading_locked() const noexcept;

  ServerShared& shared_;
  const std::uint64_t id_;
  const std::unique_ptr<Channel> channel_;
  const std::string peer_;

  // The loop's own.
  std::string end_reason_;
  Body body_;
  alignas(8) std::array<std::byte, sizeof(wire::ConnectBody)> small_{};  // connect or close frame
  std::uint64_t bytes_seen_ = 0;
  std::uint64_t frames_ = 0;
  Nanoseconds last_heard_;
  Nanoseconds frame_begun_ = 0;  // 0: between frames
  bool goodbye_ = false;
  std::uint16_t version_ = 0;
  std::uint32_t frame_bytes_max_ = 0;
  Nanoseconds heartbeat_ = 0;
  Nanoseconds loss_ = 0;

  std::mutex mutex_;
  Phase phase_ = Phase::negotiating;
  Outbox outbox_;
  std::array<std::uint64_t, wire::kSlots> open_{};  // sequence in each slot; 0: free
  std::uint32_t open_calls_ = 0;
  std::size_t queued_bytes_ = 0;  // of requests that the consumer has not taken
  bool throttled_ = false;
  bool cut_off_ = false;  // replies were not read and the outbox is full
  Nanoseconds last_sent_;
  Nanoseconds phase_ends_;  // of negotiating and draining
};

}  // namespace ofl
