// The seam between the request/reply core and a wire.  The core (client, server) knows frames, slots and deadlines; a
// backend knows descriptors and bytes.  Nothing above this header names a socket, a ring or a queue pair.
//
// Two ways for a reply.  A plain one is a frame like any other: the core says where its body lands (`Inbox::landing`),
// and a body on its way there stops at `Channel::retract`.  A *placed* one goes to memory that the caller chose and may
// have registered: a backend with one-sided writes puts it there without the caller's CPU and tells only the completion
// (`Inbox::placed`); the others treat it like a plain one.  A one-sided write that was posted cannot be called back, so
// the core keeps such memory in quarantine until the peer, or the death of the connection, proves that none can come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <poll.h>

#include "clock.hpp"
#include "memory.hpp"
#include "ofl.h"
#include "wire.hpp"

namespace ofl {

using Part = ofl_part;

inline constexpr std::uint32_t kPartsMax = 64;  // of a user's message; a frame may carry one more of the core's own

struct Capabilities {
  std::uint32_t parts_max;  // of a user's message
  bool registered_memory;   // a peer can address our memory by a key
  bool direct_placement;    // a placed body reaches its memory without a staging copy of the whole
  bool one_sided;           // our CPU takes no part in a placement
};

enum class Progress {
  done,     // all of it
  blocked,  // what is possible now; poll the descriptor and go on
  closed,   // the peer closed its end in order
  failed,   // the wire failed or the peer broke the framing: `Channel::fault` says how
};

// A frame on its way out: a header, the caller's parts, and how far it got.  Borrows the parts.
class Outgoing {
 public:
  Outgoing(const wire::FrameHeader& header, std::span<const Part> parts, Memory* lent = nullptr) noexcept
      : header_(header), parts_(parts), lent_(lent) {}

  const wire::FrameHeader& header() const noexcept { return header_; }
  std::span<const Part> parts() const noexcept { return parts_; }
  // Not nullptr: parts that lie in it stay as they are until it is idle, so they may be sent without a copy.
  Memory* lent() const noexcept { return lent_; }
  std::size_t size() const noexcept { return sizeof header_ + header_.body_bytes; }
  std::size_t sent() const noexcept { return sent_; }
  void advance(std::size_t bytes) noexcept { sent_ += bytes; }

 private:
  wire::FrameHeader header_;
  std::span<const Part> parts_;
  Memory* lent_;
  std::size_t sent_ = 0;
};

// What `Inbox::landing` decides about a frame whose header has arrived.
struct Landing {
  std::byte* memory = nullptr;  // body_bytes of it; nullptr: read the body and drop it
  const char* fault = nullptr;  // not nullptr: the peer broke a rule, this is the clause
};

// The receiving side of the core.  Called on the thread inside `Channel::receive` or `poll`.
class Inbox {
 public:
  virtual Landing landing(const wire::FrameHeader& header) noexcept = 0;
  // The completion: the body is whole (or was dropped).
  virtual void completed(const wire::FrameHeader& header) noexcept = 0;
  // One-sided backends: the peer wrote `bytes` bytes to the memory of the call in this slot, and they are there.
  // Not nullptr: the peer broke a rule, this is the clause.
  virtual const char* placed(std::uint32_t slot, std::uint64_t bytes) noexcept {
    static_cast<void>(slot);
    static_cast<void>(bytes);
    return "a placement came to a side that asked for none";
  }

 protected:
  ~Inbox() = default;
};

// The fault of a wire that failed below us, as opposed to a peer that broke a rule.
inline constexpr char kResetFault[] = "the connection was reset";

// What a sleeper is to be woken by: everything, or room to send alone.
enum class Arm : std::uint8_t { all, room };

// One connection.  Two sides, each under a mutex of the core: {send, place, reap} exclude each other, and {receive, poll,
// take_credits, retract, arm, readable_now, low_water, mid_frame, bytes_received} do.  Both sides may run at the same time.
// `shut_down` may be called by any thread at any time.
class Channel {
 public:
  virtual ~Channel() = default;
  Channel() = default;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  virtual Capabilities capabilities() const noexcept = 0;
  // For people: "tcp", or the device and what was chosen on it.  Control path.
  virtual std::string describe() const = 0;

  // Readable once `arm` was called and there is something for `receive` (data, room for what was blocked, a hang-up).
  virtual int descriptor() const noexcept = 0;
  // A socket: POLLRDHUP on it means that the peer's process or host is gone.
  virtual int hangup_descriptor() const noexcept { return descriptor(); }
  // Events on `descriptor` that tell that a blocked `send` may go on.
  virtual short room_events() const noexcept { return POLLIN; }
  // True: `poll` costs no system call, so a loop may call it without end.
  virtual bool cheap_to_poll() const noexcept { return true; }
  // Looks for something to `poll`, a few times and then no more.  For a loop that has nothing else to look at.
  virtual void watch() noexcept {}
  // Before sleeping on `descriptor`.  False: there is something already, do not sleep.  `Arm::room`: of whoever reads nothing
  // now; what came is not something then, only that a blocked send may go on, or that the wire broke.
  virtual bool arm(Arm what = Arm::all) noexcept {
    static_cast<void>(what);
    return true;
  }

  // What memory must be registered with before it is placed into or lent; nullptr: with the host.
  virtual Registrar* registrar() noexcept { return nullptr; }
  // On return no body can reach the memory any more through `Inbox::landing`; one on its way there is dropped.
  virtual void retract(const std::byte* memory) noexcept = 0;

  virtual Progress send(Outgoing& frame) noexcept = 0;
  // Sends a reply to where the peer wants it.
  virtual Progress place(const wire::PlacementRecord& where, Outgoing& frame) noexcept {
    static_cast<void>(where);
    return send(frame);
  }
  // Takes the completions of sends, so that lent memory becomes idle.
  virtual void reap() noexcept {}

  // Takes what has arrived, at most about `budget` bytes.  `poll` looks at the data alone, `receive` also for a hang-up.
  virtual Progress receive(Inbox& inbox, std::size_t budget) noexcept = 0;
  virtual Progress poll(Inbox& inbox, std::size_t budget) noexcept { return receive(inbox, budget); }
  // For whoever reads nothing now and has something to send: takes what the peer said about room from among what came, and
  // leaves the rest.  Not `blocked`: the wire broke, or the peer is gone.  Where room is seen without reading, there is
  // nothing to do.
  virtual Progress take_credits() noexcept { return Progress::blocked; }

  virtual bool readable_now() noexcept = 0;
  // How many bytes must be here before the descriptor tells of them.  More than 1 in the middle of a large body, of a peer
  // that lives: whoever judges silence, or sleeps for long, reads by itself in between.
  virtual std::size_t low_water() const noexcept { return 1; }
  // True in the middle of an incoming frame.
  virtual bool mid_frame() const noexcept = 0;
  virtual std::uint64_t bytes_received() const noexcept = 0;

  // Wakes every wait on the descriptor and fails later calls; the descriptor stays valid until destruction.  On return
  // no placement of the peer can reach our memory any more.
  virtual void shut_down() noexcept = 0;
  // Nothing more will be sent; what was sent still arrives.
  virtual void end_sending() noexcept = 0;
  virtual const char* fault() const noexcept = 0;
};

enum class Wait { ready, deadline, interrupted, again };

// Until the armed channel's descriptor has one of `events`; `interrupted` by a signal, `again` after kSlice.
Wait wait_for(Channel& channel, short events, Nanoseconds deadline) noexcept;

}  // namespace ofl
