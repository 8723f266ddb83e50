// The rules of an RDMA link frame.  Pure: what a peer says of its end is judged here, before a device hears of it.
#pragma once

#include "gid_choice.hpp"
#include "wire.hpp"

namespace ofl {

// What is wrong with a peer's link frame, as a clause that names the field, or nullptr.  `peer`: the GID of the address
// that its control socket comes from.
const char* rdma_link_fault(const wire::RdmaLinkBody& body, const Gid& peer) noexcept;

}  // namespace ofl
