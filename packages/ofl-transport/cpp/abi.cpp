// The C ABI that belongs to neither side.

#include <cstdlib>

#include "ofl.h"
#include "tcp_channel.hpp"

std::uint32_t ofl_abi_version() noexcept { return OFL_ABI_VERSION; }

void ofl_capabilities_get(ofl_capabilities* capabilities) noexcept {
  const ofl::Capabilities tcp = ofl::TcpChannel::tcp_capabilities();
  *capabilities = {.abi_version = OFL_ABI_VERSION,
                   .wire_version = ofl::wire::kHeaderVersion,
                   .parts_max = tcp.parts_max,
                   .registered_memory = tcp.registered_memory ? 1U : 0U,
                   .direct_placement = tcp.direct_placement ? 1U : 0U,
                   .one_sided = tcp.one_sided ? 1U : 0U};
}

void ofl_body_free(void* body) noexcept { std::free(body); }
