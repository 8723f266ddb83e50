// Requests as their bytes say them, checked against the contract alone; what a server makes of them is not decided here.
// Checks stand in the order of ofl.contract.engram_v1, so that both name the same field for the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "wire.hpp"

namespace engram {

using Bytes = std::span<const std::byte>;

// Why a message is refused.  field: as the contract spells it.  detail: one clause.
struct Fault {
  wire::Code code;
  std::string field;
  std::string detail;
};

// An OPEN; its layers are read from the message, which must outlive the view.
struct OpenView {
  wire::Open record{};
  const std::byte* layers = nullptr;

  wire::OpenLayer layer(std::size_t index) const noexcept {
    return wire::load<wire::OpenLayer>(layers + index * sizeof(wire::OpenLayer));
  }
};

// A LOOKUP; heads and ids are read from the message, which must outlive the view.
struct LookupView {
  wire::Lookup record{};
  std::uint32_t rows = 0;  // of all parts
  const std::byte* heads = nullptr;
  const std::byte* ids = nullptr;  // of the first part; the others' follow

  wire::LookupPart part(std::size_t index) const noexcept {
    return wire::load<wire::LookupPart>(heads + index * sizeof(wire::LookupPart));
  }
};

std::optional<Fault> parse_header(Bytes message, wire::Header& header);
std::optional<Fault> parse_open(Bytes body, OpenView& open);
std::optional<Fault> parse_lookup(Bytes body, LookupView& lookup);
std::optional<Fault> parse_stats(Bytes body);

// Operation and batch of a message that was refused; Op::unreadable and 0 where they cannot be read.
struct Address {
  wire::Op op = wire::Op::unreadable;
  std::uint64_t batch = 0;
};
Address salvage(Bytes message) noexcept;

}  // namespace engram
