#include "server_lookup.hpp"

#include <algorithm>
#include <cstring>

namespace engram {

namespace {

constexpr std::size_t kIdBytes = sizeof(std::uint32_t);

void zero_behind(std::byte* plane, std::size_t rows, std::size_t width) noexcept {
  const std::size_t used = rows * width;
  std::memset(plane + used, 0, wire::plane_bytes(rows, width) - used);
}

}  // namespace

void Lookup::take(const LookupView& view, const Session& of) {
  flags = view.record.flags;
  rows = view.rows;
  parts.clear();
  reply_bytes = wire::kHeadBytes;
  const std::byte* ids = view.ids;
  for (std::size_t index = 0; index < view.record.parts; ++index) {
    const wire::LookupPart asked = view.part(index);
    const Table* const table = of.layers[asked.layer];
    parts.push_back({table, ids, asked.ids, nullptr, nullptr});
    ids += asked.ids * kIdBytes;
    reply_bytes += wire::part_bytes(asked.ids, table->rows.columns, table->rows.scales);
  }
}

void Lookup::copy_ids() {
  copied.assign(parts.front().ids, parts.front().ids + rows * kIdBytes);
  const std::byte* ids = copied.data();
  for (Part& part : parts) {
    part.ids = ids;
    ids += part.count * kIdBytes;
  }
}

void Lookup::place(ReplyBuffer* into) {
  buffer = into;
  std::byte* at = into->base + wire::kHeadBytes;
  for (Part& part : parts) {
    const std::size_t columns = part.table->rows.columns;
    const std::size_t scales = part.table->rows.scales;
    part.values = at;
    part.scales = at + wire::plane_bytes(part.count, columns);
    zero_behind(part.values, part.count, columns);
    zero_behind(part.scales, part.count, scales);
    at = part.scales + wire::plane_bytes(part.count, scales);
  }
}

void Lookup::cut(std::uint32_t rows_max) {
  pieces.clear();
  for (std::uint32_t index = 0; index < parts.size(); ++index)
    for (std::uint32_t begin = 0; begin < parts[index].count; begin += rows_max)
      pieces.push_back({index, begin, begin + std::min(rows_max, parts[index].count - begin)});
  if (pieces.empty()) pieces.push_back({0, 0, 0});
  pieces_taken = 0;
  pieces_left.store(pieces.size(), std::memory_order_relaxed);
  bad_id.store(kAllRowsFound, std::memory_order_relaxed);
}

void Lookup::fill(const Piece& piece) noexcept {
  const Part& part = parts[piece.part];
  const Rows& table = part.table->rows;
  const std::uint64_t bad = gather(table, part.ids + piece.begin * kIdBytes, piece.end - piece.begin,
                                   part.values + std::size_t{piece.begin} * table.columns,
                                   part.scales + std::size_t{piece.begin} * table.scales);
  if (bad == kAllRowsFound) return;
  // Pieces end in any order; the first bad id of the message is named whichever found it.
  const std::uint64_t place = (std::uint64_t{piece.part} << 32U) | (piece.begin + bad);
  std::uint64_t seen = bad_id.load(std::memory_order_relaxed);
  while (place < seen && !bad_id.compare_exchange_weak(seen, place, std::memory_order_relaxed)) {
  }
}

std::uint64_t Lookup::absent() const noexcept {
  std::uint64_t count = 0;
  for (const Part& part : parts) count += count_absent(part.ids, part.count);
  return count;
}

Fault Lookup::bad_id_fault() const {
  const std::uint64_t place = bad_id.load(std::memory_order_relaxed);
  const std::uint64_t index = place >> 32U;
  const std::uint64_t position = place & 0xFFFFFFFFU;
  const Part& part = parts[index];
  const auto id = wire::load<std::uint32_t>(part.ids + position * kIdBytes);
  return {wire::Code::bad_id, "lookup_part[" + std::to_string(index) + "].ids",
          std::to_string(id) + " at position " + std::to_string(position) + " where layer " +
              std::to_string(part.table->layer) + " has rows " + std::to_string(part.table->rows.row_start) + " .. " +
              std::to_string(part.table->rows.row_end)};
}

}  // namespace engram
