// Rows land in planes as they lie in the table, whatever the widths, alignments, ids and distance of asking ahead.

#include <algorithm>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "check.hpp"
#include "gather.hpp"
#include "wire.hpp"

namespace {

using engram::gather_ahead;
using engram::kAllRowsFound;
using engram::Rows;
using engram::wire::kNoRow;

constexpr std::byte kPoison{0xA5};

// A table whose every byte follows from its row and column, in memory that ends where the table does.
struct Table {
  Table(std::uint32_t columns, std::uint32_t scales, std::uint64_t start, std::uint64_t end)
      : bytes((end - start) * (columns + scales)) {
    rows = {.packed = bytes.data(), .row_start = start, .row_end = end, .columns = columns, .scales = scales};
    for (std::uint64_t id = start; id < end; ++id)
      for (std::uint32_t at = 0; at < columns + scales; ++at) bytes[(id - start) * (columns + scales) + at] = cell(id, at);
  }

  static std::byte cell(std::uint64_t id, std::uint32_t at) noexcept {
    return static_cast<std::byte>((id * 2654435761U + at * 40503U) >> 7U);
  }

  std::vector<std::byte> bytes;
  Rows rows;
};

struct Planes {
  Planes(const Rows& rows, std::size_t count)
      : values(count * rows.columns, kPoison), scales(count * rows.scales, kPoison) {}
  std::vector<std::byte> values;
  std::vector<std::byte> scales;
};

std::vector<std::byte> at_odd_address(const std::vector<std::uint32_t>& ids) {
  std::vector<std::byte> bytes(ids.size() * sizeof(std::uint32_t) + 1);
  if (!ids.empty()) std::memcpy(bytes.data() + 1, ids.data(), ids.size() * sizeof(std::uint32_t));
  return bytes;
}

bool exact(const Rows& rows, const std::vector<std::uint32_t>& ids, const Planes& planes) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    for (std::uint32_t at = 0; at < rows.columns + rows.scales; ++at) {
      const std::byte expected = ids[i] == kNoRow ? std::byte{0} : Table::cell(ids[i], at);
      const std::byte found = at < rows.columns ? planes.values[i * rows.columns + at]
                                                : planes.scales[i * rows.scales + at - rows.columns];
      if (found != expected) return false;
    }
  }
  return true;
}

std::vector<std::uint32_t> random_ids(const Rows& rows, std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<std::uint32_t> id(static_cast<std::uint32_t>(rows.row_start),
                                                  static_cast<std::uint32_t>(rows.row_end - 1));
  std::vector<std::uint32_t> ids(count);
  for (std::uint32_t& one : ids) one = random() % 9 == 0 ? kNoRow : id(random);
  return ids;
}

std::uint64_t run(const Rows& rows, const std::vector<std::uint32_t>& ids, Planes& planes, std::size_t ahead) {
  const std::vector<std::byte> bytes = at_odd_address(ids);
  return gather_ahead(rows, bytes.data() + 1, ids.size(), planes.values.data(), planes.scales.data(), ahead);
}

}  // namespace

TEST(rows_of_every_width_are_copied_exactly_at_every_distance) {
  struct Width {
    std::uint32_t columns;
    std::uint32_t scales;
  };
  for (const Width width : {Width{256, 8}, {256, 16}, {32, 1}, {65, 5}, {1, 1}, {1024, 32}}) {
    const Table table(width.columns, width.scales, 1000, 1300);
    for (const std::size_t count : {0UL, 1UL, 2UL, 15UL, 16UL, 17UL, 288UL, 2000UL}) {
      for (const std::size_t ahead : {0UL, 1UL, 16UL, 64UL, 5000UL}) {
        const auto ids = random_ids(table.rows, count, static_cast<std::uint32_t>(count + ahead));
        Planes planes(table.rows, count);
        CHECK(run(table.rows, ids, planes, ahead) == kAllRowsFound);
        CHECK(exact(table.rows, ids, planes));
      }
    }
  }
}

TEST(the_first_and_the_last_row_of_a_table_are_read_and_nothing_beside_them) {
  const Table table(256, 8, 7, 9);  // an address sanitizer sees a read past either end
  for (const std::vector<std::uint32_t>& ids : {std::vector<std::uint32_t>{7, 8, 7}, {8}, {7}}) {
    Planes planes(table.rows, ids.size());
    CHECK(run(table.rows, ids, planes, 16) == kAllRowsFound);
    CHECK(exact(table.rows, ids, planes));
  }
}

TEST(the_first_id_that_is_no_row_is_named_and_none_past_the_ends_is_read) {
  const Table table(256, 8, 100, 200);
  for (const std::uint32_t bad : {99U, 200U, 0U, 0x7FFFFFFFU, 0x80000000U, 0xFFFFFFFEU}) {
    for (const std::size_t at : {0UL, 1UL, 40UL, 99UL}) {
      std::vector<std::uint32_t> ids = random_ids(table.rows, 100, 3);
      ids[at] = bad;
      ids[99] = bad;
      Planes planes(table.rows, ids.size());
      CHECK(run(table.rows, ids, planes, 16) == at);
    }
  }
}

TEST(a_table_at_the_end_of_the_ids_keeps_the_last_one_apart) {
  const Table table(32, 1, 0xFFFFFFF0U, 0xFFFFFFFFU);
  const std::vector<std::uint32_t> ids{0xFFFFFFFEU, kNoRow, 0xFFFFFFF0U};
  Planes planes(table.rows, ids.size());
  CHECK(run(table.rows, ids, planes, 16) == kAllRowsFound);
  CHECK(exact(table.rows, ids, planes));
}

TEST(an_empty_table_has_no_row) {
  const Table table(32, 1, 5, 5);
  Planes planes(table.rows, 1);
  CHECK(run(table.rows, {5}, planes, 16) == 0);
  CHECK(run(table.rows, {4}, planes, 16) == 0);
  CHECK(run(table.rows, {kNoRow}, planes, 16) == kAllRowsFound);
}

TEST(absent_ids_are_counted) {
  const std::vector<std::byte> bytes = at_odd_address({kNoRow, 0, 0xFFFFFFFEU, kNoRow});
  CHECK(engram::count_absent(bytes.data() + 1, 4) == 2);
  CHECK(engram::count_absent(bytes.data() + 1, 0) == 0);
}
