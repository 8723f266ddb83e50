// From a negotiated control socket to the channel that carries the data.  One object per connection that is being made.
//
// The client: open, send `ours` in a link frame, receive the server's, join, finish.  The server: receive the client's,
// open, join, send `ours` with `descriptors`, finish.  The control socket stays with the channel: its end is the peer's end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "backend.hpp"
#include "socket.hpp"
#include "status.hpp"
#include "wire.hpp"

namespace ofl {

enum class Role : std::uint8_t { client, server };

class Link {
 public:
  virtual ~Link() = default;
  Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Makes this end's part: a queue pair with its receives posted, or (server) a shared region.
  virtual Outcome open(Role role, int control, std::uint32_t frame_bytes_max) = 0;
  // The body of our link frame, and the descriptors that go with it.  Valid after `open`.
  virtual std::span<const std::byte> ours() const noexcept = 0;
  virtual std::span<const int> descriptors() const noexcept { return {}; }
  // Judges the peer's link frame and connects the two ends.  A failure says what the peer got wrong, or what this host
  // lacks.
  virtual Outcome join(std::span<const std::byte> theirs, std::span<UniqueFd> descriptors) = 0;
  // After `join`: the channel, which takes the control socket.
  virtual Outcome finish(UniqueFd control, std::unique_ptr<Channel>& channel) = 0;
};

std::unique_ptr<Link> make_rdma_link();
std::unique_ptr<Link> make_shm_link();

// Can this host serve RDMA on the address?  Checked when listening, so that a refusal comes at the start.  `registrar`: of
// the device that connections to this address will use.
Outcome check_rdma_address(const Address& address, Registrar*& registrar);
// The device, port and GID for a local address, and why; or why there is none.  For people.
Outcome explain_rdma_address(const Address& address, std::string& text);
// Whether RDMA can work at all on this host: built in, library found, a device there.
Outcome rdma_available();

}  // namespace ofl
