// The seam between the request/reply core and a wire.  The core (client, server) knows frames, slots and deadlines; a
// backend knows descriptors and bytes.  Nothing above this header names a socket call.
//
// Drawn for wires with registered memory.  A reply is *placed*: the caller keeps one landing slot per open call, the
// server names it by (index, generation), and the bytes go straight there.  A backend with one-sided writes does that
// without the caller's CPU; TCP reads the body from the socket into the slot's memory and says so in `capabilities`.
// A placement whose generation is no longer current never touches the memory: see `Inbox::landing` and
// `Channel::retract`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "clock.hpp"
#include "ofl.h"
#include "wire.hpp"

namespace ofl {

using Part = ofl_part;

struct Capabilities {
  std::uint32_t parts_max;  // parts of one frame
  bool registered_memory;   // a peer can address our memory by `Region::key`
  bool direct_placement;    // a placed body reaches its slot without a staging copy of the whole
  bool one_sided;           // our CPU takes no part in a placement
};

// Memory that the backend knows.  key 0: no peer can address it, bodies arrive through `Inbox::landing` only.
struct Region {
  std::byte* base = nullptr;
  std::size_t bytes = 0;
  std::uint64_t key = 0;
};

enum class Progress {
  done,     // all of it
  blocked,  // what is possible now; poll the descriptor and go on
  closed,   // the peer closed its end in order
  failed,   // the wire failed or the peer broke the framing: `Channel::fault` says how
};

enum class Wait { ready, deadline, interrupted, again };

// A frame on its way out: a header, the caller's parts, and how far it got.  Borrows the parts.
class Outgoing {
 public:
  Outgoing(const wire::FrameHeader& header, std::span<const Part> parts) noexcept : header_(header), parts_(parts) {}

  const wire::FrameHeader& header() const noexcept { return header_; }
  std::span<const Part> parts() const noexcept { return parts_; }
  std::size_t size() const noexcept { return sizeof header_ + header_.body_bytes; }
  std::size_t sent() const noexcept { return sent_; }
  void advance(std::size_t bytes) noexcept { sent_ += bytes; }

 private:
  wire::FrameHeader header_;
  std::span<const Part> parts_;
  std::size_t sent_ = 0;
};

// What `Inbox::landing` decides about a frame whose header has arrived.
struct Landing {
  std::byte* memory = nullptr;  // body_bytes of it; nullptr: read the body and drop it
  const char* fault = nullptr;  // not nullptr: the peer broke a rule, this is the clause
};

// The receiving side of the core.  Called on the thread inside `Channel::receive`.
class Inbox {
 public:
  virtual Landing landing(const wire::FrameHeader& header) noexcept = 0;
  // The completion: the body is whole (or was dropped).
  virtual void completed(const wire::FrameHeader& header) noexcept = 0;

 protected:
  ~Inbox() = default;
};

// The fault of a wire that failed below us, as opposed to a peer that broke a rule.
inline constexpr char kResetFault[] = "the connection was reset";

// One connection.  `send` and `place` exclude each other, and `receive` and `retract` do: the core holds a mutex for
// each side.  Sending and receiving may go on at the same time.
class Channel {
 public:
  virtual ~Channel() = default;
  Channel() = default;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  virtual Capabilities capabilities() const noexcept = 0;
  virtual int descriptor() const noexcept = 0;

  virtual Region register_memory(std::span<std::byte> memory) noexcept = 0;
  // On return no placement can reach the memory any more; a body on its way there is dropped.
  virtual void retract(const std::byte* memory) noexcept = 0;

  virtual Progress send(Outgoing& frame) noexcept = 0;
  // Sends a reply to the slot that the peer holds for it.
  virtual Progress place(wire::Slot remote, Outgoing& frame) noexcept = 0;
  // Takes what has arrived, at most about `budget` bytes.
  virtual Progress receive(Inbox& inbox, std::size_t budget) noexcept = 0;

  // Until there is something to receive; `interrupted` by a signal, `again` after kSlice.
  virtual Wait wait_readable(Nanoseconds deadline) noexcept = 0;
  virtual bool readable_now() noexcept = 0;
  // True in the middle of an incoming frame.
  virtual bool mid_frame() const noexcept = 0;
  virtual std::uint64_t bytes_received() const noexcept = 0;

  // Wakes every wait on the descriptor and fails later calls; the descriptor stays valid until destruction.
  virtual void shut_down() noexcept = 0;
  virtual void end_sending() noexcept = 0;
  virtual const char* fault() const noexcept = 0;
};

}  // namespace ofl
