// Replies but LOOKUP's planes, as bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "request.hpp"
#include "wire.hpp"

namespace engram {

using Message = std::vector<std::byte>;

// Field and clause are cut to what a refusal may hold, so that one always leaves.
Message refusal(const Address& to, const Fault& fault);
Message open_reply(std::uint64_t batch, const wire::OpenReply& record);
Message stats_reply(std::uint64_t batch, std::string_view text);

// The first bytes of a LOOKUP's reply; its planes follow.
void store_lookup_head(std::uint64_t batch, const wire::LookupReply& record, std::size_t reply_bytes,
                       std::byte* to) noexcept;

}  // namespace engram
