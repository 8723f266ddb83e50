// The C ABI that belongs to neither side: what this build can do, bodies and buffers.

#include "abi.hpp"

#include <string_view>
#include <vector>

#include "abi_buffer.hpp"
#include "auth.hpp"
#include "body.hpp"
#include "link.hpp"
#include "ofl.h"
#include "socket_channel.hpp"

using ofl::guarded;

namespace {

ofl::Outcome feature(std::string_view name) {
  if (name == "tcp" || name == "shm") return {};
  if (name == "rdma") return ofl::rdma_available();
  if (name == "hmac-sha256") return ofl::hmac_available();
  return ofl::failure(OFL_INVALID, std::string(name).append(" is not one of: tcp, shm, rdma, hmac-sha256"));
}

}  // namespace

std::uint32_t ofl_abi_version() noexcept { return OFL_ABI_VERSION; }

std::int32_t ofl_capabilities_get(std::uint32_t transport, ofl_capabilities* capabilities) noexcept {
  if (transport < OFL_TCP || transport > OFL_SHM) return OFL_INVALID;
  const bool one_sided = transport == OFL_RDMA;
  *capabilities = {.abi_version = OFL_ABI_VERSION,
                   .wire_version = ofl::wire::kHeaderVersion,
                   .parts_max = ofl::kPartsMax,
                   .registered_memory = one_sided ? 1U : 0U,
                   .direct_placement = 1U,
                   .one_sided = one_sided ? 1U : 0U};
  return OFL_OK;
}

std::int32_t ofl_feature(const char* name, char* text, std::size_t text_bytes) noexcept {
  return guarded(text, text_bytes, [&] { return feature(name); });
}

std::int32_t ofl_rdma_choice(const char* address, char* text, std::size_t text_bytes) noexcept {
  return guarded(text, text_bytes, [&]() -> ofl::Outcome {
    std::vector<ofl::Address> addresses;
    ofl::Outcome outcome = ofl::resolve(address, 0, ofl::now_ns() + 5 * ofl::kSecond, addresses);
    if (!outcome) return outcome;
    std::string words;
    outcome = ofl::explain_rdma_address(addresses.front(), words);
    return outcome ? ofl::Outcome{OFL_OK, words} : outcome;
  });
}

void ofl_body_free(void* body) noexcept { ofl::free_body(body); }

std::int32_t ofl_buffer_create(void* base, std::size_t bytes, std::uint32_t flags, ofl_buffer** buffer, char* text,
                               std::size_t text_bytes) noexcept {
  return guarded(text, text_bytes, [&]() -> ofl::Outcome {
    if ((flags & ~static_cast<std::uint32_t>(OFL_BUFFER_BOUNCE)) != 0)
      return ofl::failure(OFL_INVALID, "flags of a buffer has bits that are not defined");
    std::shared_ptr<ofl::Memory> memory;
    const bool bounce = (flags & OFL_BUFFER_BOUNCE) != 0;
    ofl::Outcome outcome = ofl::Memory::create(static_cast<std::byte*>(base), bytes, bounce, memory);
    if (outcome) *buffer = new ofl_buffer{std::move(memory)};
    return outcome;
  });
}

void* ofl_buffer_base(ofl_buffer* buffer) noexcept { return buffer->memory->bytes().data(); }

void ofl_buffer_free(ofl_buffer* buffer) noexcept { delete buffer; }
