// A stand-in for GPU streams: hand-over blocks, re-armed round after round, each row compared with the source's bytes.
//
//     engram_client_stream ROWS_FILE SHARD ENDPOINT IDENTITY SOURCE LAYER RANK RANKS COLUMNS SCALES ROW_START ROW_END ROUNDS
//
// ROWS_FILE: the packed rows row_start .. row_end-1 as the test's numpy wrote them, no header.  ENDPOINT: tcp HOST PORT or shm
// NAME, with commas.  IDENTITY, SOURCE: hex digests.  OFL_LIBRARY: path of libofl.so.  Makes at least ROUNDS rounds, and goes
// on until its standard input ends.  Prints rounds and remote lookups so far now and then, at the end "wrong N" and every
// counter.  Exit status 0 if no row was wrong.

#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "clock.hpp"
#include "engram.h"
#include "ofl.h"
#include "wire.hpp"

namespace {

constexpr std::uint32_t kRowsMax = 288;
constexpr std::uint32_t kBlocks = 2;
constexpr std::size_t kIdsOffset = 128;
constexpr std::uint64_t kReportEvery = 100;

std::uint64_t number(const char* text) { return std::strtoull(text, nullptr, 10); }

void digest(const std::string& hex, std::uint8_t* bytes) {
  for (std::size_t i = 0; i < 32; ++i) std::from_chars(hex.data() + 2 * i, hex.data() + 2 * i + 2, bytes[i], 16);
}

struct Memory {
  explicit Memory(std::size_t wanted) : size((wanted + 63) / 64 * 64), base(static_cast<std::byte*>(std::aligned_alloc(64, size))) {
    std::memset(base, 0, size);
  }
  ~Memory() { std::free(base); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  const std::size_t size;
  std::byte* const base;
};

class Stream {
 public:
  explicit Stream(char** words)
      : shard_(words[2]),
        columns_(static_cast<std::uint32_t>(number(words[9]))),
        scales_(static_cast<std::uint32_t>(number(words[10]))),
        row_start_(number(words[11])),
        row_end_(number(words[12])) {
    std::ifstream file(words[1], std::ios::binary);
    rows_.assign(std::istreambuf_iterator<char>(file), {});
    fill(words);
  }

  bool open();
  std::size_t round(std::uint64_t turn);  // rows that were wrong
  unsigned long long remote() const {
    std::uint64_t counters[ENGRAM_CLIENT_COUNTERS];
    engram_client_counters(client_, counters);
    return counters[0];
  }
  void end() {
    std::uint64_t counters[ENGRAM_CLIENT_COUNTERS];
    engram_client_counters(client_, counters);
    for (std::uint32_t i = 0; engram_client_counter_name(i) != nullptr; ++i)
      std::printf("%s %llu\n", engram_client_counter_name(i), static_cast<unsigned long long>(counters[i]));
    engram_client_free(client_);
  }

 private:
  void fill(char** words);
  std::size_t compare(const std::vector<std::int32_t>& ids, const std::byte* staging) const;

  const std::string shard_;
  std::string host_;
  const std::uint32_t columns_;
  const std::uint32_t scales_;
  const std::uint64_t row_start_;
  const std::uint64_t row_end_;
  std::vector<char> rows_;
  engram_layer layer_{};
  engram_client_options options_{};
  engram_client* client_ = nullptr;
  std::vector<std::unique_ptr<Memory>> blocks_;
  std::vector<std::unique_ptr<Memory>> stagings_;
  std::mt19937_64 random_{1};
};

void Stream::fill(char** words) {
  const std::string endpoint = words[3];
  const std::size_t first = endpoint.find(',');
  const std::size_t second = endpoint.find(',', first + 1);
  host_ = endpoint.substr(first + 1, second - first - 1);
  options_.host = host_.c_str();
  options_.transport = endpoint.substr(0, first) == "tcp" ? OFL_TCP : OFL_SHM;
  if (second != std::string::npos) options_.port = static_cast<std::uint16_t>(number(endpoint.c_str() + second + 1));
  digest(words[4], options_.identity);
  digest(words[5], layer_.source_sha256);
  layer_.shard = shard_.c_str();
  layer_.layer = static_cast<std::uint32_t>(number(words[6]));
  layer_.row_start = row_start_;
  layer_.row_end = row_end_;
  options_.layers = &layer_;
  options_.layer_count = 1;
  options_.rank = static_cast<std::uint32_t>(number(words[7]));
  options_.ranks = static_cast<std::uint32_t>(number(words[8]));
  options_.columns = columns_;
  options_.scales = scales_;
  options_.batch_rows_max = kRowsMax;
  options_.flags = ENGRAM_BUFFERED;  // the rounds are about the hand-over, not about the disk
  options_.read_threads = 2;
  options_.timeout_ns = 100 * engram::kMillisecond;
  options_.connect_timeout_ns = engram::kSecond;
  options_.retry_ns = 5 * engram::kMillisecond;
  options_.retry_max_ns = 50 * engram::kMillisecond;
  options_.heartbeat_ns = 50 * engram::kMillisecond;
  options_.loss_ns = 2 * engram::kSecond;
  options_.spin_ns = 50 * engram::kMicrosecond;
}

bool Stream::open() {
  char text[512] = "";
  const char* const library = std::getenv("OFL_LIBRARY");
  std::int32_t status = engram_library_open(library, text, sizeof text);
  if (status == ENGRAM_OK) status = engram_client_create(&options_, &client_, text, sizeof text);
  for (std::uint32_t i = 0; i < kBlocks && status == ENGRAM_OK; ++i) {
    blocks_.push_back(std::make_unique<Memory>(kIdsOffset + kRowsMax * sizeof(std::int32_t)));
    stagings_.push_back(std::make_unique<Memory>(engram_staging_bytes(&kRowsMax, 1, columns_, scales_)));
    std::uint32_t staging = 0;
    status = engram_client_add_staging(client_, stagings_[i]->base, stagings_[i]->size, &staging, text, sizeof text);
    auto* const block = reinterpret_cast<engram_handover*>(blocks_[i]->base);
    if (status == ENGRAM_OK) status = engram_client_attach(client_, block, kRowsMax, 0, staging, text, sizeof text);
  }
  if (status != ENGRAM_OK) std::fprintf(stderr, "%s\n", text);
  return status == ENGRAM_OK;
}

std::size_t Stream::round(std::uint64_t turn) {
  const std::size_t which = turn % kBlocks;
  auto& block = *reinterpret_cast<engram_handover*>(blocks_[which]->base);
  std::vector<std::int32_t> ids(turn % 97 == 0 ? kRowsMax : turn % 25);
  for (std::int32_t& id : ids) id = static_cast<std::int32_t>(row_start_ + random_() % (row_end_ - row_start_ + 8)) - 4;
  std::memset(stagings_[which]->base, 0xA5, stagings_[which]->size);
  if (!ids.empty()) std::memcpy(blocks_[which]->base + kIdsOffset, ids.data(), ids.size() * sizeof ids[0]);
  block.rows = static_cast<std::uint32_t>(ids.size());
  std::atomic_ref(block.request).store(1, std::memory_order_release);
  std::atomic_ref done(block.done);
  while (done.load(std::memory_order_acquire) == 0) std::this_thread::yield();
  done.store(0, std::memory_order_relaxed);
  return compare(ids, stagings_[which]->base);
}

std::size_t Stream::compare(const std::vector<std::int32_t>& ids, const std::byte* staging) const {
  const std::byte* const values = staging + engram::wire::kHeadBytes;
  const std::byte* const scales = values + engram::wire::plane_bytes(ids.size(), columns_);
  const std::vector<char> zeros(columns_ + scales_, 0);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::int64_t row = ids[i] - static_cast<std::int64_t>(row_start_);
    const bool inside = row >= 0 && row < static_cast<std::int64_t>(row_end_ - row_start_);
    const char* const wanted = inside ? rows_.data() + static_cast<std::size_t>(row) * zeros.size() : zeros.data();
    const bool same = std::memcmp(wanted, values + i * columns_, columns_) == 0 &&
                      std::memcmp(wanted + columns_, scales + i * scales_, scales_) == 0;
    wrong += same ? 0U : 1U;
  }
  return wrong;
}

}  // namespace

int main(int count, char** words) {
  if (count != 14) return 2;
  Stream stream(words);
  if (!stream.open()) return 2;
  std::size_t wrong = 0;
  const std::uint64_t rounds = number(words[13]);
  std::atomic<bool> told{false};
  std::thread thread([&] {
    for (std::uint64_t turn = 1; turn <= rounds || !told.load(std::memory_order_relaxed); ++turn) {
      wrong += stream.round(turn);
      if (turn % kReportEvery != 0) continue;
      std::printf("%llu %llu\n", static_cast<unsigned long long>(turn), stream.remote());
      std::fflush(stdout);
    }
  });
  while (std::getchar() != EOF) continue;
  told.store(true, std::memory_order_relaxed);
  thread.join();
  std::printf("wrong %zu\n", wrong);
  stream.end();
  return wrong == 0 ? 0 : 1;
}
