// How long a gather takes, by rows and by how far ahead it asks for rows, beside a plain memcpy of the same rows.
//
//     engram_gather_bench [GIB]
//
// Medians of many batches of fresh random ids over a table of GIB (1), which is larger than any cache.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "clock.hpp"
#include "gather.hpp"
#include "table_memory.hpp"

namespace {

constexpr std::uint32_t kColumns = 256;
constexpr std::uint32_t kScales = 8;
constexpr std::size_t kRowBytes = kColumns + kScales;

// What a program without any thought for memory would do.
void plain(const engram::Rows& rows, const std::vector<std::uint32_t>& ids, std::byte* to) {
  for (std::size_t i = 0; i < ids.size(); ++i) std::memcpy(to + i * kRowBytes, rows.packed + ids[i] * kRowBytes, kRowBytes);
}

template <typename Run>
double median_us(const engram::Rows& rows, std::size_t count, std::size_t batches, Run&& run) {
  std::mt19937_64 random(count);
  std::vector<std::uint32_t> ids(count);
  std::vector<double> spans;
  for (std::size_t batch = 0; batch < batches; ++batch) {
    for (std::uint32_t& id : ids) id = static_cast<std::uint32_t>(random() % rows.row_end);
    const engram::Nanoseconds begun = engram::now_ns();
    run(ids);
    spans.push_back(static_cast<double>(engram::now_ns() - begun) / 1000.0);
  }
  std::nth_element(spans.begin(), spans.begin() + static_cast<std::ptrdiff_t>(batches / 2), spans.end());
  return spans[batches / 2];
}

}  // namespace

int main(int count, char** words) {
  const std::uint64_t bytes = static_cast<std::uint64_t>(count > 1 ? std::atoll(words[1]) : 1) << 30U;
  void* base = nullptr;
  const engram::Outcome outcome = engram::allocate_table_memory(bytes, false, base);
  std::printf("%s\n", outcome.text.c_str());
  if (!outcome) return 1;
  std::memset(base, 7, bytes);
  const engram::Rows rows{.packed = static_cast<const std::byte*>(base),
                          .row_start = 0,
                          .row_end = bytes / kRowBytes,
                          .columns = kColumns,
                          .scales = kScales};
  std::vector<std::byte> to(49'152 * kRowBytes);
  for (const std::size_t size : {24UL, 288UL, 1024UL, 4096UL, 49'152UL}) {
    const std::size_t batches = std::max<std::size_t>(20, 400'000 / size);
    const double memcpy_us = median_us(rows, size, batches, [&](const auto& ids) { plain(rows, ids, to.data()); });
    std::printf("%6zu rows: memcpy %9.1f us", size, memcpy_us);
    for (const std::size_t ahead : {0UL, 4UL, 8UL, 16UL, 32UL, 64UL}) {
      const double us = median_us(rows, size, batches, [&](const auto& ids) {
        engram::gather_ahead(rows, reinterpret_cast<const std::byte*>(ids.data()), ids.size(), to.data(),
                             to.data() + size * kColumns, ahead);
      });
      std::printf("  %zu: %.1f", ahead, us);
    }
    std::printf("\n");
  }
  engram::free_table_memory(base, bytes);
  return 0;
}
