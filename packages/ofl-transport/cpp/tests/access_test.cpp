// The allowlist and the failure limit.

#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include <netinet/in.h>
#include <sys/un.h>

#include <arpa/inet.h>

#include "access.hpp"
#include "check.hpp"

using namespace ofl;

namespace {

Address peer(const std::string& host, std::uint16_t port = 40000, std::uint32_t scope = 0) {
  Address address;
  if (host.find(':') == std::string::npos) {
    auto* const four = reinterpret_cast<sockaddr_in*>(&address.storage);
    four->sin_family = AF_INET;
    four->sin_port = htons(port);
    CHECK(::inet_pton(AF_INET, host.c_str(), &four->sin_addr) == 1);
    address.bytes = sizeof *four;
  } else {
    auto* const six = reinterpret_cast<sockaddr_in6*>(&address.storage);
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(port);
    six->sin6_scope_id = scope;
    CHECK(::inet_pton(AF_INET6, host.c_str(), &six->sin6_addr) == 1);
    address.bytes = sizeof *six;
  }
  return address;
}

Address local_peer() {
  Address address;
  address.storage.ss_family = AF_UNIX;
  address.bytes = sizeof(sa_family_t);
  return address;
}

AllowList list_of(std::initializer_list<std::string> rules) {
  AllowList list;
  const std::vector<std::string> all(rules);
  const Outcome outcome = AllowList::parse(all, list);
  if (!outcome) std::printf("%s\n", outcome.text.c_str());
  CHECK(outcome);
  return list;
}

bool refused(const std::string& rule, const std::string& clause) {
  AllowList list = list_of({"10.0.0.1"});
  const std::vector<std::string> rules = {"10.0.0.2", rule};
  const Outcome outcome = AllowList::parse(rules, list);
  const bool untouched = list.allows(peer("10.0.0.1")) && !list.allows(peer("10.0.0.2"));
  const bool good = outcome.status == OFL_INVALID && untouched && outcome.text.find(clause) != std::string::npos &&
                    outcome.text.find("allowed address '") == 0;
  if (!good) std::printf("status %d: %s\n", static_cast<int>(outcome.status), outcome.text.c_str());
  return good;
}

// `count` failures at one moment.
void fail(FailureLimiter& limiter, const Address& address, Nanoseconds now, int count) {
  for (int i = 0; i < count; ++i) limiter.failed(address, now);
}

constexpr Nanoseconds kNow = 1'000 * kSecond;

}  // namespace

TEST(an_empty_list_allows_everybody) {
  const AllowList list = list_of({});
  CHECK(list.empty());
  CHECK(list.allows(peer("10.0.0.1")) && list.allows(peer("fd00::1")) && list.allows(local_peer()));
}

TEST(an_address_allows_itself_whatever_the_port) {
  const AllowList list = list_of({"10.0.0.7", "fd00::7"});
  CHECK(!list.empty());
  CHECK(list.allows(peer("10.0.0.7", 1)) && list.allows(peer("10.0.0.7", 65535)));
  CHECK(!list.allows(peer("10.0.0.6")) && !list.allows(peer("10.0.0.8")) && !list.allows(peer("11.0.0.7")));
  CHECK(list.allows(peer("fd00::7")) && list.allows(peer("fd00:0:0::7", 2)));
  CHECK(!list.allows(peer("fd00::6")) && !list.allows(peer("fd00:1::7")));
}

TEST(a_prefix_allows_exactly_what_it_covers) {
  const AllowList list = list_of({"10.1.2.0/23", "192.168.4.128/25", "fd00:0:0:8000::/49", "fe80::/10"});
  for (const char* host : {"10.1.2.0", "10.1.3.255", "192.168.4.128", "192.168.4.255", "fd00:0:0:8000::",
                           "fd00:0:0:ffff:ffff:ffff:ffff:ffff", "fe80::1", "febf::1"})
    CHECK(list.allows(peer(host)));
  for (const char* host : {"10.1.1.255", "10.1.4.0", "192.168.4.127", "192.168.5.128", "fd00:0:0:7fff::1",
                           "fd00:0:1:8000::", "fec0::1", "fd80::1"})
    CHECK(!list.allows(peer(host)));
}

TEST(a_prefix_of_nothing_allows_its_family_alone) {
  const AllowList four = list_of({"0.0.0.0/0"});
  CHECK(four.allows(peer("255.255.255.255")) && four.allows(peer("0.0.0.0")) && !four.allows(peer("::1")));
  const AllowList six = list_of({"::/0"});
  CHECK(six.allows(peer("::1")) && six.allows(peer("ff02::1")) && !six.allows(peer("10.0.0.1")));
  CHECK(!six.allows(peer("::ffff:10.0.0.1")));
}

TEST(a_mapped_peer_is_the_ipv4_peer_that_it_is) {
  const AllowList list = list_of({"10.0.0.0/24", "::ffff:10.9.0.0/112"});
  CHECK(list.allows(peer("::ffff:10.0.0.200")) && !list.allows(peer("::ffff:10.0.1.200")));
  CHECK(list.allows(peer("10.9.0.1")) && list.allows(peer("::ffff:10.9.255.255")) && !list.allows(peer("10.10.0.1")));
  CHECK(!list.allows(peer("::10.0.0.1")));  // the same last bytes, but no mapped address
}

TEST(a_link_local_peer_is_allowed_on_every_interface) {
  const AllowList list = list_of({"fe80::1"});
  CHECK(list.allows(peer("fe80::1", 1, 2)) && list.allows(peer("fe80::1", 1, 3)));
  CHECK(!list.allows(peer("fe80::2", 1, 2)));
}

TEST(a_peer_without_an_ip_address_is_on_no_list) {
  const AllowList list = list_of({"0.0.0.0/0", "::/0"});
  CHECK(!list.allows(local_peer()) && !list.allows(Address{}));
}

TEST(prefixes_agree_with_a_comparison_bit_by_bit) {
  std::mt19937_64 random(11);
  const auto bit = [](std::uint32_t word, unsigned index) { return (word >> (31 - index)) & 1U; };
  int allowed = 0;
  for (int turn = 0; turn < 20'000; ++turn) {
    const unsigned bits = static_cast<unsigned>(random() % 33);
    const auto word = static_cast<std::uint32_t>(random());
    const std::uint32_t prefix = bits == 0 ? 0 : word >> (32 - bits) << (32 - bits);
    // Near misses: the peer differs from the prefix in one bit at most.
    const std::uint32_t other = word ^ (random() % 4 == 0 ? 0U : 1U << (random() % 32));
    const auto text = [](std::uint32_t value) {
      char buffer[INET_ADDRSTRLEN];
      const in_addr address{htonl(value)};
      return std::string(::inet_ntop(AF_INET, &address, buffer, sizeof buffer));
    };
    bool expected = true;
    for (unsigned i = 0; i < bits; ++i) expected = expected && bit(other, i) == bit(prefix, i);
    const AllowList list = list_of({text(prefix) + "/" + std::to_string(bits)});
    CHECK(list.allows(peer(text(other))) == expected);
    allowed += expected ? 1 : 0;
  }
  CHECK(allowed > 5'000 && allowed < 15'000);
}

TEST(bits_after_a_prefix_are_refused_with_both_readings) {
  CHECK(refused("10.0.0.1/24", "'10.0.0.1/24': it has bits after the first 24; write 10.0.0.0/24 or 10.0.0.1"));
  CHECK(refused("0.0.0.1/0", "write 0.0.0.0/0 or 0.0.0.1"));
  CHECK(refused("fd00::1/8", "write fd00::/8 or fd00::1"));
  CHECK(refused("::ffff:10.0.0.1/104", "write 10.0.0.0/8 or 10.0.0.1"));
}

TEST(what_is_no_rule_is_refused_by_name) {
  for (const char* rule : {"", " 10.0.0.1", "10.0.0.1 ", "10.0.0", "10.0.0.256", "010.0.0.1", "0x0a.0.0.1", "host", "*",
                           "/24", "[fd00::1]", "fd00:::1", "fe80::1%eth0", "10.0.0.1:80"})
    CHECK(refused(rule, "no IPv4 or IPv6 address"));
  for (const char* rule : {"10.0.0.0/", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/+8", "10.0.0.0/ 8", "10.0.0.0/8x",
                           "10.0.0.0/255.0.0.0", "10.0.0.0/24/24", "10.0.0.0/99999999999"})
    CHECK(refused(rule, "no number from 0 to 32"));
  CHECK(refused("fd00::/129", "no number from 0 to 128"));
  CHECK(refused("::ffff:0:0/95", "covers more than the IPv4 addresses"));
  CHECK(refused(std::string("10.0.0.1\0junk", 13), "'10.0.0.1?junk': it is no IPv4 or IPv6 address"));
  CHECK(refused("10.0.0.1\n", "'10.0.0.1?'"));
}

TEST(the_number_of_rules_is_bounded) {
  std::vector<std::string> rules(AllowList::kRulesMax, "10.0.0.1");
  AllowList list;
  CHECK(AllowList::parse(rules, list));
  rules.emplace_back("10.0.0.2");
  const Outcome outcome = AllowList::parse(rules, list);
  CHECK(outcome.status == OFL_INVALID && outcome.text.find("1025 allowed addresses") == 0);
  CHECK(!list.allows(peer("10.0.0.2")));
}

TEST(four_failures_cost_nothing_and_the_fifth_a_second) {
  FailureLimiter limiter;
  fail(limiter, peer("10.0.0.1"), kNow, 4);
  CHECK(limiter.refused_for(peer("10.0.0.1"), kNow) == 0);
  limiter.failed(peer("10.0.0.1", 40001), kNow);  // another port, the same address
  CHECK(limiter.refused_for(peer("10.0.0.1", 40002), kNow) == kSecond);
  CHECK(limiter.refused_for(peer("::ffff:10.0.0.1"), kNow) == kSecond);
  CHECK(limiter.refused_for(peer("10.0.0.1"), kNow + kSecond - 1) == 1);
  CHECK(limiter.refused_for(peer("10.0.0.1"), kNow + kSecond) == 0);
  CHECK(limiter.refused_for(peer("10.0.0.2"), kNow) == 0);
}

TEST(failures_count_within_ten_seconds_whenever_those_began) {
  FailureLimiter limiter;
  const Address slow = peer("10.0.0.1");
  // One every 2.5 s and a bit: five of them never lie within 10 s.
  const Nanoseconds apart = 2'500'000'001;
  for (int i = 0; i < 100; ++i) {
    limiter.failed(slow, kNow + i * apart);
    CHECK(limiter.refused_for(slow, kNow + i * apart) == 0);
  }
  const Address steady = peer("10.0.0.2");
  for (int i = 0; i < 5; ++i) limiter.failed(steady, kNow + i * (apart - 1));
  CHECK(limiter.refused_for(steady, kNow + 10 * kSecond) == kSecond);
  const Address late = peer("10.0.0.3");  // the window slides: the first two are too old for the last three
  fail(limiter, late, kNow, 2);
  fail(limiter, late, kNow + 9 * kSecond, 2);
  limiter.failed(late, kNow + 11 * kSecond);
  CHECK(limiter.refused_for(late, kNow + 11 * kSecond) == 0);
  fail(limiter, late, kNow + 12 * kSecond, 2);
  CHECK(limiter.refused_for(late, kNow + 12 * kSecond) == kSecond);
}

TEST(each_further_failure_doubles_the_refusal_up_to_a_minute) {
  FailureLimiter limiter;
  const Address address = peer("fd00::1");
  fail(limiter, address, kNow, 5);
  Nanoseconds now = kNow;
  for (const Nanoseconds seconds : {1, 2, 4, 8, 16, 32, 60, 60, 60}) {
    CHECK(limiter.refused_for(address, now) == seconds * kSecond);
    now += seconds * kSecond;  // the refusal ends
    CHECK(limiter.refused_for(address, now) == 0);
    limiter.failed(address, now);
  }
}

TEST(failures_that_were_under_way_change_nothing) {
  FailureLimiter limiter;
  fail(limiter, peer("10.0.0.1"), kNow, 64);
  CHECK(limiter.refused_for(peer("10.0.0.1"), kNow) == kSecond);
  fail(limiter, peer("10.0.0.1"), kNow + kSecond - 1, 64);
  CHECK(limiter.refused_for(peer("10.0.0.1"), kNow + kSecond) == 0);
}

TEST(a_success_and_a_quiet_minute_clear) {
  FailureLimiter limiter;
  const Address address = peer("10.0.0.1");
  fail(limiter, address, kNow, 5);
  limiter.succeeded(peer("10.0.0.1", 1));
  CHECK(limiter.refused_for(address, kNow) == 0 && limiter.hosts() == 0);
  fail(limiter, address, kNow, 4);
  CHECK(limiter.refused_for(address, kNow) == 0);
  limiter.failed(address, kNow);
  const Nanoseconds ended = kNow + kSecond;
  limiter.failed(address, ended + FailureLimiter::kProbation);  // as the first one
  CHECK(limiter.refused_for(address, ended + FailureLimiter::kProbation) == 0);
  FailureLimiter other;
  fail(other, address, kNow, 5);
  other.failed(address, ended + FailureLimiter::kProbation - 1);
  CHECK(other.refused_for(address, ended + FailureLimiter::kProbation - 1) == 2 * kSecond);
}

TEST(the_table_is_bounded_and_the_oldest_gives_way) {
  FailureLimiter limiter;
  const auto host = [](unsigned index) {  // later ones have lower addresses
    const unsigned low = 9'999 - index;
    return peer("10.1." + std::to_string(low / 256) + "." + std::to_string(low % 256));
  };
  fail(limiter, host(0), kNow, 5);
  fail(limiter, host(1), kNow + 1, 5);
  fail(limiter, host(2), kNow + 2, 4);
  for (unsigned i = 3; i < FailureLimiter::kHostsMax; ++i) limiter.failed(host(i), kNow + i);
  CHECK(limiter.hosts() == FailureLimiter::kHostsMax);
  const Nanoseconds now = kNow + FailureLimiter::kHostsMax;
  limiter.failed(host(2), now);  // its last failure counts, not its first
  CHECK(limiter.refused_for(host(0), now) > 0);
  limiter.failed(host(1024), now);
  limiter.failed(host(1025), now);
  CHECK(limiter.hosts() == FailureLimiter::kHostsMax);
  CHECK(limiter.refused_for(host(0), now) == 0);
  CHECK(limiter.refused_for(host(1), now) == 0);
  CHECK(limiter.refused_for(host(2), now) > 0);
  for (unsigned i = 1026; i < 5000; ++i) limiter.failed(host(i), now + i);
  CHECK(limiter.hosts() == FailureLimiter::kHostsMax);
  CHECK(limiter.refused_for(host(2), now) == 0);
}

TEST(link_local_hosts_of_two_interfaces_are_two) {
  FailureLimiter limiter;
  fail(limiter, peer("fe80::1", 1, 2), kNow, 5);
  CHECK(limiter.refused_for(peer("fe80::1", 1, 2), kNow) > 0 && limiter.refused_for(peer("fe80::1", 1, 3), kNow) == 0);
}

TEST(peers_of_this_host_are_never_refused) {
  FailureLimiter limiter;
  fail(limiter, local_peer(), kNow, 100);
  CHECK(limiter.refused_for(local_peer(), kNow) == 0 && limiter.hosts() == 0);
  limiter.succeeded(local_peer());
}
