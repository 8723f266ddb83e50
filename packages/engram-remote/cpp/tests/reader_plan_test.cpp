#include "reader_plan.hpp"

#include <cstring>
#include <vector>

#include "check.hpp"
#include "shard_files.hpp"

using engram::Extent;
using engram::ReadPlan;
using engram::RowLayout;

namespace {

// Rows of 264 bytes from byte 4096 on, ids 1000 .. 1999.
RowLayout layout_of(std::uint32_t block) {
  return {.first_byte = 4096, .row_start = 1000, .row_end = 2000, .columns = 256, .scales = 8, .block = block, .descriptor = -1};
}

struct Planned {
  explicit Planned(std::vector<std::int32_t> wanted, std::uint32_t block, std::uint32_t extent_bytes_max = 16384)
      : layout(layout_of(block)), ids(std::move(wanted)), room(ids.size(), 256, 8), plan(extent_bytes_max) {
    plan.add({&layout, ids, room.planes});
  }
  RowLayout layout;
  std::vector<std::int32_t> ids;
  shard_files::Room room;
  ReadPlan plan;
};

}  // namespace

TEST(a_row_that_straddles_two_blocks_is_read_with_both) {
  // Row 1001 begins at 4096 + 264 = 4360, in the block at 4096, and ends at 4624, in the one at 4608.
  const Planned one({1001}, 512);
  CHECK(one.plan.extents().size() == 1);
  const Extent& extent = one.plan.extents()[0];
  CHECK(extent.offset == 4096 && extent.needed == 528 && extent.asked == 1024 && extent.count == 1);
}

TEST(rows_of_the_same_block_and_of_the_next_one_are_read_together_in_any_order) {
  const Planned near({1003, 1000, 1001, 1000}, 512);
  CHECK(near.plan.extents().size() == 1);
  CHECK(near.plan.extents()[0].count == 4);
  const Planned far({1000, 1900}, 512);
  CHECK(far.plan.extents().size() == 2);
}

TEST(no_read_is_longer_than_it_may_be) {
  std::vector<std::int32_t> run(200);
  for (std::size_t i = 0; i < run.size(); ++i) run[i] = static_cast<std::int32_t>(1000 + i);
  const Planned planned(run, 512, 4096);
  std::size_t rows = 0;
  for (const Extent& extent : planned.plan.extents()) {
    CHECK(extent.asked <= 4096);
    CHECK(extent.offset % 512 == 0 && extent.asked % 512 == 0 && extent.needed <= extent.asked);
    rows += extent.count;
  }
  CHECK(rows == run.size());
  CHECK(planned.plan.extents().size() >= 200U * 264U / 4096U);
}

TEST(one_row_fits_into_the_least_extent_wherever_it_begins) {
  for (const std::uint32_t block : {1U, 512U, 4096U}) {
    const std::uint32_t least = ReadPlan::extent_bytes_min(264, block);
    for (std::int32_t id = 1000; id < 1100; ++id) {
      const Planned one({id}, block, least);
      CHECK(one.plan.extents().size() == 1 && one.plan.extents()[0].asked <= least);
    }
  }
}

TEST(ids_without_a_row_get_zeros_and_are_counted_and_not_read) {
  const Planned planned({999, 2000, -1, INT32_MIN, INT32_MAX}, 512);
  CHECK(planned.plan.extents().empty());
  CHECK(planned.plan.out_of_shard() == 5);
  for (std::size_t i = 0; i + 1 < planned.room.bytes.size(); ++i) CHECK(planned.room.bytes[i] == std::byte{0});
}

TEST(rows_go_to_every_place_that_asked_for_them) {
  Planned planned({1001, 1000, 1001}, 1);
  CHECK(planned.plan.extents().size() == 1);
  std::vector<std::byte> data(528);
  for (std::size_t i = 0; i < data.size(); ++i)
    data[i] = static_cast<std::byte>(shard_files::row_byte(1, 1000 + i / 264, static_cast<std::uint32_t>(i % 264)));
  planned.plan.scatter(planned.plan.extents()[0], data.data());
  const auto spec = shard_files::spec_of("", 1000);
  CHECK(shard_files::wrong_rows(spec, planned.ids, planned.room.planes) == 0);
}
