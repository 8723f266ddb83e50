// The tables that a server holds, and what an OPEN may bind of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gather.hpp"
#include "request.hpp"
#include "status.hpp"

namespace engram {

struct Table {
  Rows rows;
  std::uint32_t layer = 0;
  std::uint32_t rank = 0;
  std::uint32_t ranks = 0;
};

using Identity = std::array<std::uint8_t, wire::kIdentityBytes>;

std::string hexadecimal(const Identity& identity);

// Filled before the first connection, unchanged after it.
class Tables {
 public:
  Tables(const Identity& identity, std::uint32_t columns, std::uint32_t scales) noexcept
      : identity_(identity), columns_(columns), scales_(scales) {}

  Outcome add(const Table& table);
  const Identity& identity() const noexcept { return identity_; }
  std::uint32_t columns() const noexcept { return columns_; }
  std::uint32_t scales() const noexcept { return scales_; }
  const std::vector<std::unique_ptr<Table>>& all() const noexcept { return tables_; }

  // The tables of an OPEN's layers, in their order; or why it is refused.
  std::optional<Fault> bind(const OpenView& open, std::vector<const Table*>& bound) const;

 private:
  const Table* find(std::uint32_t layer, std::uint32_t rank) const noexcept;
  std::optional<Fault> check(const wire::Open& open) const;

  const Identity identity_;
  const std::uint32_t columns_;
  const std::uint32_t scales_;
  std::vector<std::unique_ptr<Table>> tables_;
};

}  // namespace engram
