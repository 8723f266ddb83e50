#include "server_tables.hpp"

#include <utility>

namespace engram {

namespace {

using wire::Code;

std::string both(std::uint64_t client, std::uint64_t server) {
  return "the client has " + std::to_string(client) + ", the server has " + std::to_string(server);
}

std::string range(std::uint64_t begin, std::uint64_t end) {
  return std::to_string(begin) + " .. " + std::to_string(end);
}

}  // namespace

std::string hexadecimal(const Identity& identity) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : identity) {
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 0xFU];
  }
  return text;
}

Outcome Tables::add(const Table& table) {
  const std::string what = "layer " + std::to_string(table.layer) + " rank " + std::to_string(table.rank);
  if (table.ranks == 0 || table.ranks > wire::kRanksMax || table.rank >= table.ranks)
    return failure(ENGRAM_INVALID, "rank: " + std::to_string(table.rank) + " is not one of " + std::to_string(table.ranks));
  if (table.rows.row_start > table.rows.row_end || table.rows.row_end > wire::kRowEndMax)
    return failure(ENGRAM_INVALID, "row_end: " + range(table.rows.row_start, table.rows.row_end) + " of " + what +
                                       " is no range of 32-bit ids");
  if (table.rows.packed == nullptr) return failure(ENGRAM_INVALID, "rows: " + what + " has none");
  if (find(table.layer, table.rank) != nullptr) return failure(ENGRAM_INVALID, "layer: " + what + " was added before");
  tables_.push_back(std::make_unique<Table>(table));
  tables_.back()->rows.columns = columns_;
  tables_.back()->rows.scales = scales_;
  return {};
}

const Table* Tables::find(std::uint32_t layer, std::uint32_t rank) const noexcept {
  for (const auto& table : tables_)
    if (table->layer == layer && table->rank == rank) return table.get();
  return nullptr;
}

std::optional<Fault> Tables::check(const wire::Open& open) const {
  if (open.identity != identity_)
    return Fault{Code::identity, "open.identity",
                 "the client has " + hexadecimal(open.identity) + ", the server has " + hexadecimal(identity_)};
  if (open.columns != columns_) return Fault{Code::shape, "open.columns", both(open.columns, columns_)};
  if (open.scales != scales_) return Fault{Code::shape, "open.scales", both(open.scales, scales_)};
  return std::nullopt;
}

std::optional<Fault> Tables::bind(const OpenView& open, std::vector<const Table*>& bound) const {
  if (auto fault = check(open.record)) return fault;
  for (std::size_t index = 0; index < open.record.layers; ++index) {
    const wire::OpenLayer asked = open.layer(index);
    const std::string where = "open_layer[" + std::to_string(index) + "]";
    const Table* const table = find(asked.layer, open.record.rank);
    if (table == nullptr)
      return Fault{Code::no_table, where + ".layer",
                   "layer " + std::to_string(asked.layer) + " of rank " + std::to_string(open.record.rank) +
                       " is not served here"};
    if (table->ranks != open.record.ranks)
      return Fault{Code::shape, "open.ranks", both(open.record.ranks, table->ranks)};
    if (asked.row_start != table->rows.row_start || asked.row_end != table->rows.row_end)
      return Fault{Code::shape, where + ".row_start",
                   "the client has rows " + range(asked.row_start, asked.row_end) + ", the server has " +
                       range(table->rows.row_start, table->rows.row_end)};
    bound.push_back(table);
  }
  return std::nullopt;
}

}  // namespace engram
