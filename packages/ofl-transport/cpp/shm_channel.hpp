// Frames over two rings of shared memory.  Owns the mapping and the control socket; knows the framing, nothing of its
// meaning.  Data never enters the kernel.  The control socket carries *bells*, single bytes without meaning that wake a
// sleeper, and its end is the peer's end.
//
// Who sleeps raises `sleeps` in its end of the header, looks once more, and waits on the socket; who writes a record looks
// at that word afterwards and rings once for each value.  A blocked send sets `room_wanted`, and whoever takes records
// looks at it at each eighth of the ring.  docs/transport/shm.md shows why no wake-up is lost.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "backend.hpp"
#include "frame_reader.hpp"
#include "shm_region.hpp"
#include "shm_ring.hpp"
#include "socket.hpp"

namespace ofl {

class ShmChannel final : public Channel {
 public:
  // `looks`: the peer can run while this end looks without sleeping.
  ShmChannel(ShmRegion region, UniqueFd control, bool looks) noexcept;

  Capabilities capabilities() const noexcept override;
  std::string describe() const override { return region_.describe(); }
  int descriptor() const noexcept override { return control_.get(); }
  void watch() noexcept override;
  bool arm(Arm what = Arm::all) noexcept override;
  void retract(const std::byte* memory) noexcept override { frames_.retract(memory); }
  Progress send(Outgoing& frame) noexcept override;
  // Takes what is there; ends after each whole frame, because a look at the next record costs a cache miss that a reply
  // need not wait for.
  Progress poll(Inbox& inbox, std::size_t budget) noexcept override;
  Progress receive(Inbox& inbox, std::size_t budget) noexcept override;
  bool readable_now() noexcept override { return !reader_.front().empty() || reader_.fault() != nullptr; }
  bool mid_frame() const noexcept override { return frames_.mid_frame(); }
  std::uint64_t bytes_received() const noexcept override { return frames_.bytes_received(); }
  void shut_down() noexcept override;
  void end_sending() noexcept override;
  const char* fault() const noexcept override { return fault_.load(std::memory_order_relaxed); }

 private:
  enum class Until { frame_whole, empty };
  enum class Stage : std::uint8_t { open, sending_ended, down };

  // The sending side.
  bool may_send() const noexcept;
  bool find_room(std::size_t wanted, std::span<std::byte>& record, Nanoseconds& patience) noexcept;
  bool look_for_room(std::size_t wanted, std::span<std::byte>& record, Nanoseconds& patience) noexcept;
  void want_room(std::uint64_t taken) noexcept;
  void wake_reader() noexcept;

  // The receiving side.
  Progress take(Inbox& inbox, std::size_t budget, Until until) noexcept;
  void give_back() noexcept;
  bool hung_up() noexcept;
  bool room_came() const noexcept;
  void silence_bells() noexcept;
  void expect_rest() noexcept;

  Progress fail(const char* clause) noexcept;
  void ring_bell() noexcept;

  const ShmRegion region_;
  const UniqueFd control_;
  const std::size_t ring_bytes_;
  const bool looks_;
  std::atomic<Stage> stage_{Stage::open};
  std::atomic<const char*> fault_{nullptr};  // the first one; either side may find it
  // What our end of the header says in the word of that name, written by the sending side.
  std::atomic<std::uint64_t> room_wanted_{0};

  alignas(kApartBytes) RingWriter writer_;  // the sending side's from here on
  std::uint64_t sleeps_rung_ = 0;           // the last of the peer's sleeps that we rang for

  alignas(kApartBytes) RingReader reader_;  // the receiving side's from here on
  FrameReader frames_;
  std::uint64_t sleeps_ = 0;
  std::uint64_t room_rung_ = 0;    // the last of the peer's wishes for room that we rang for
  std::uint64_t expected_at_ = 0;  // bytes_received when `arm` last waited for the rest of a frame
};

}  // namespace ofl
