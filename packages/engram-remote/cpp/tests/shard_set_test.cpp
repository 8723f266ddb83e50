#include "shard_set.hpp"

#include <filesystem>

#include "check.hpp"
#include "shard_files.hpp"

using engram::Outcome;
using engram::ShardBatch;
using engram::ShardSet;
using engram::ShardSetOptions;
using engram::ShardSpec;

namespace {

constexpr ShardSetOptions kWays[] = {{true, true, 0},  {false, true, 0},  {true, false, 0}, {false, false, 0},
                                     {true, false, 7}, {false, false, 7}, {true, false, 40}};

std::size_t wrong_of(ShardSet& set, const ShardSpec& spec, const std::vector<std::int32_t>& ids, Outcome& outcome) {
  shard_files::Room room(ids.size(), spec.columns, spec.scales);
  const ShardBatch batch{0, ids, room.planes};
  outcome = set.read({&batch, 1});
  CHECK(room.bytes.back() == std::byte{0xA5});  // nothing past the planes
  return outcome ? shard_files::wrong_rows(spec, ids, room.planes) : ids.size();
}

}  // namespace

TEST(every_way_of_reading_gives_exact_rows_of_every_width) {
  for (const auto& [columns, scales] : {std::pair{256U, 8U}, {32U, 1U}, {17U, 17U}, {65536U, 2048U}}) {
    shard_files::Folder folder;
    const ShardSpec spec = shard_files::spec_of(folder.file("shard"), columns > 1000 ? 40 : 3000, columns, scales);
    shard_files::write_shard(spec);
    for (const ShardSetOptions& way : kWays) {
      std::unique_ptr<ShardSet> set;
      CHECK(static_cast<bool>(ShardSet::open({&spec, 1}, way, set)));
      if (!set) continue;
      for (const std::size_t count : {0U, 1U, 2U, 63U, 288U, 1001U}) {
        Outcome outcome;
        CHECK(wrong_of(*set, spec, shard_files::random_ids(spec, columns > 1000 ? count / 10 : count), outcome) == 0);
        CHECK(static_cast<bool>(outcome));
      }
    }
  }
}

TEST(first_last_repeated_neighbouring_and_strange_ids_are_exact) {
  shard_files::Folder folder;
  const ShardSpec spec = shard_files::spec_of(folder.file("shard"), 3000);
  shard_files::write_shard(spec);
  std::vector<std::int32_t> run(900);
  for (std::size_t i = 0; i < run.size(); ++i) run[i] = static_cast<std::int32_t>(2200 - i);
  const std::vector<std::vector<std::int32_t>> lists = {
      {1000}, {3999}, {999, 4000, -1, INT32_MIN, INT32_MAX}, {3999, 1000, 3999, 5000, 1000}, std::vector<std::int32_t>(700, 1234), run};
  for (const ShardSetOptions& way : kWays) {
    std::unique_ptr<ShardSet> set;
    CHECK(static_cast<bool>(ShardSet::open({&spec, 1}, way, set)));
    for (const auto& ids : lists) {
      Outcome outcome;
      CHECK(set && wrong_of(*set, spec, ids, outcome) == 0);
    }
  }
}

TEST(several_layers_are_read_in_one_go) {
  shard_files::Folder folder;
  ShardSpec specs[] = {shard_files::spec_of(folder.file("a"), 500, 64, 2), shard_files::spec_of(folder.file("b"), 700, 64, 2, 0)};
  specs[1].layer = 1;
  shard_files::write_shard(specs[0], 1);
  shard_files::write_shard(specs[1], 2);
  for (const ShardSetOptions& way : kWays) {
    std::unique_ptr<ShardSet> set;
    CHECK(static_cast<bool>(ShardSet::open(specs, way, set)));
    if (!set) continue;
    const auto first = shard_files::random_ids(specs[0], 321);
    const auto second = shard_files::random_ids(specs[1], 77);
    shard_files::Room a(first.size(), 64, 2);
    shard_files::Room b(second.size(), 64, 2);
    const ShardBatch batches[] = {{1, second, b.planes}, {0, first, a.planes}};
    CHECK(static_cast<bool>(set->read(batches)));
    CHECK(shard_files::wrong_rows(specs[0], first, a.planes, 1) == 0);
    CHECK(shard_files::wrong_rows(specs[1], second, b.planes, 2) == 0);
  }
}

TEST(a_file_that_is_cut_while_in_use_fails_the_whole_lookup_and_is_named) {
  for (const ShardSetOptions& way : kWays) {
    shard_files::Folder folder;
    const ShardSpec spec = shard_files::spec_of(folder.file("shard"), 3000);
    shard_files::write_shard(spec);
    std::unique_ptr<ShardSet> set;
    CHECK(static_cast<bool>(ShardSet::open({&spec, 1}, way, set)));
    std::filesystem::resize_file(spec.path, spec.file_bytes() - 100 * 264);
    Outcome outcome;
    wrong_of(*set, spec, {1000, 3999}, outcome);
    CHECK(outcome.status == ENGRAM_SHARD && outcome.text.find(spec.path) == 0);
    wrong_of(*set, spec, {1000}, outcome);  // a row that is there still: the file is not what it was
    CHECK(outcome.status == ENGRAM_SHARD);
  }
}

TEST(a_read_that_failed_leaves_nothing_behind_for_the_next_one) {
  shard_files::Folder folder;
  ShardSpec specs[] = {shard_files::spec_of(folder.file("a"), 3000), shard_files::spec_of(folder.file("b"), 3000)};
  specs[1].layer = 1;
  for (const ShardSetOptions& way : kWays) {
    shard_files::write_shard(specs[0]);
    shard_files::write_shard(specs[1]);
    std::unique_ptr<ShardSet> set;
    CHECK(static_cast<bool>(ShardSet::open(specs, way, set)));
    std::filesystem::resize_file(specs[1].path, engram::kShardHeaderBytes);
    const auto ids = shard_files::random_ids(specs[1], 500);
    shard_files::Room room(ids.size(), 256, 8);
    const ShardBatch broken{1, ids, room.planes};
    CHECK(set->read({&broken, 1}).status == ENGRAM_SHARD);
    Outcome outcome;
    CHECK(wrong_of(*set, specs[0], ids, outcome) == 0);
  }
}

TEST(more_threads_than_there_may_be_are_refused_by_name) {
  shard_files::Folder folder;
  const ShardSpec spec = shard_files::spec_of(folder.file("shard"), 10);
  shard_files::write_shard(spec);
  std::unique_ptr<ShardSet> set;
  const Outcome outcome = ShardSet::open({&spec, 1}, {true, false, engram::kPoolThreadsMax + 1}, set);
  CHECK(outcome.status == ENGRAM_INVALID && outcome.text.find("read_threads") == 0);
}
