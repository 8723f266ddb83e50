// What RDMA says before a device is touched: a library that is missing, a link frame that lies, memory that may not be
// locked.

#include "verbs.hpp"

#include <cerrno>

#include "check.hpp"
#include "rdma_limits.hpp"
#include "rdma_memlock.hpp"
#include "rdma_terms.hpp"

using namespace ofl;

namespace {

bool says(const std::string& text, const char* words) { return text.find(words) != std::string::npos; }
bool says(const char* clause, const char* words) { return clause != nullptr && says(std::string(clause), words); }

const Gid kPeer = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 77, 0, 1};

wire::RdmaLinkBody good_body() {
  wire::RdmaLinkBody body{};
  std::copy(kPeer.begin(), kPeer.end(), body.gid);
  body.queue_pair = 17;
  body.packet_sequence = 0xFFFFFF;
  body.receives = kReceives;
  body.segment_bytes = kSegmentBytes;
  body.mtu_bytes = 1024;
  return body;
}

}  // namespace

#ifdef OFL_VERBS

TEST(a_library_that_is_missing_is_named_with_what_to_install) {
  Verbs table{};
  const Outcome outcome = open_verbs("libofl-nowhere.so.1", table);
  CHECK(!outcome && says(outcome.text, "ibverbs-providers") && says(outcome.text, "libofl-nowhere.so.1"));
}

TEST(a_library_without_a_function_is_named_with_the_function) {
  Verbs table{};
  const Outcome outcome = open_verbs("libc.so.6", table);
  CHECK(!outcome && says(outcome.text, "libc.so.6 has no ibv_get_device_list"));
}

TEST(memory_that_was_registered_before_forks_are_safe_is_told_with_the_variable_to_set) {
  Verbs table{};
  table.fork_init = [] { return EINVAL; };  // what libibverbs answers once memory is registered
  const Outcome outcome = make_forks_safe(table);
  CHECK(!outcome && says(outcome.text, "used RDMA before") && says(outcome.text, "IBV_FORK_SAFE=1 in the environment"));
  table.is_fork_initialized = [] { return IBV_FORK_DISABLED; };
  CHECK(!make_forks_safe(table));
  table.is_fork_initialized = [] { return IBV_FORK_ENABLED; };  // as by that variable
  CHECK(make_forks_safe(table));
  table.is_fork_initialized = nullptr;  // an older libibverbs
  table.fork_init = [] { return 0; };
  CHECK(make_forks_safe(table));
}

#endif

TEST(a_link_frame_must_keep_every_rule) {
  CHECK(rdma_link_fault(good_body(), kPeer) == nullptr);
  const auto faulty = [](auto change) {
    wire::RdmaLinkBody body = good_body();
    change(body);
    return rdma_link_fault(body, kPeer);
  };
  CHECK(says(faulty([](auto& body) { body.gid[15] = 2; }), "link.gid"));
  for (const std::uint32_t number : {0U, 1U, 0x1000000U})
    CHECK(says(faulty([=](auto& body) { body.queue_pair = number; }), "link.queue_pair"));
  CHECK(says(faulty([](auto& body) { body.packet_sequence = 0x1000000; }), "link.packet_sequence"));
  for (const std::uint32_t receives : {0U, 3U, 65536U})
    CHECK(says(faulty([=](auto& body) { body.receives = receives; }), "link.receives"));
  for (const std::uint32_t bytes : {0U, 1023U, (1U << 24) + 1})
    CHECK(says(faulty([=](auto& body) { body.segment_bytes = bytes; }), "link.segment_bytes"));
  for (const std::uint32_t bytes : {0U, 128U, 1500U, 8192U})
    CHECK(says(faulty([=](auto& body) { body.mtu_bytes = bytes; }), "link.mtu_bytes"));
  CHECK(says(faulty([](auto& body) { body.reserved = 1; }), "link.reserved"));
}

namespace {

RefusedRegistration refused(std::uint64_t bytes, int error) {
  return {.device = "mlx5_0", .bytes = bytes, .device_bytes_max = 1U << 30, .page_bytes = 0, .end = 0, .error = error};
}

}  // namespace

TEST(a_limit_of_locked_memory_is_told_with_need_and_command) {
  const LockedMemory locked{.limit_bytes = 8U << 20, .pinned_bytes = 6U << 20, .exempt = false};
  const std::string text = registration_text(refused(4U << 20, ENOMEM), locked);
  CHECK(says(text, "cannot register 4194304 bytes with mlx5_0"));
  CHECK(says(text, "may lock 8388608 bytes (ulimit -l 8192), has locked 6291456 and needs 10485760"));
  CHECK(says(text, "ulimit -l unlimited") && says(text, "LimitMEMLOCK=infinity") && says(text, "--ulimit memlock=-1"));
  CHECK(says(memlock_hint(locked), "may lock 8388608 bytes"));
}

TEST(the_command_is_not_shown_where_the_limit_is_not_the_cause) {
  const LockedMemory exempt{.limit_bytes = 1U << 20, .pinned_bytes = 0, .exempt = true};
  const std::string text = registration_text(refused(4U << 20, ENOMEM), exempt);
  CHECK(says(text, "out of memory") && !says(text, "ulimit"));
  const LockedMemory roomy{.limit_bytes = kUnlimited, .pinned_bytes = 0, .exempt = false};
  CHECK(!says(registration_text(refused(4U << 20, ENOMEM), roomy), "ulimit"));
  CHECK(memlock_hint(exempt).empty() && memlock_hint(roomy).empty());
}

TEST(other_refusals_of_memory_are_told_apart) {
  const LockedMemory locked{};
  CHECK(says(registration_text(refused((1U << 30) + 1, EINVAL), locked), "takes at most 1073741824 bytes"));
  CHECK(says(registration_text(refused(4096, EFAULT), locked), "not mapped, or not writable"));
  CHECK(says(registration_text(refused(4096, EOPNOTSUPP), locked), "a file's memory"));
  RefusedRegistration huge = refused(4096, EINVAL);
  huge.page_bytes = 2U << 20;
  huge.end = (2U << 20) + 4096;
  CHECK(says(registration_text(huge, locked), "ends inside a huge page of 2097152 bytes"));
  CHECK(says(registration_text(huge, locked), "RDMAV_HUGEPAGES_SAFE=1"));
  huge.end = 4U << 20;
  CHECK(!says(registration_text(huge, locked), "huge page"));
}

TEST(the_limits_of_this_process_are_read) {
  const LockedMemory locked = locked_memory();
  CHECK(locked.limit_bytes > 0);
  CHECK(page_bytes_at(&locked) >= 4096);
  CHECK(page_bytes_at(nullptr) == 0);
}
