// The proofs: HMAC-SHA-256 as the standard has it, what a proof covers, and that no role can use the other's.

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "auth.hpp"
#include "check.hpp"

using namespace ofl;
using wire::AcceptBody;
using wire::ChallengeBody;
using wire::ConnectBody;
using wire::ProofBody;

namespace {

Key key_of(std::uint8_t first, std::size_t bytes = 64) {
  Key key(bytes);
  for (std::uint8_t& byte : key.room()) byte = first++;
  key.keep(bytes);
  return key;
}

std::string hex(std::span<const std::uint8_t> bytes) {
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text += "0123456789abcdef"[byte / 16];
    text += "0123456789abcdef"[byte % 16];
  }
  return text;
}

std::string hmac_of(const std::string& key, const std::string& message) {
  const auto bytes = [](const std::string& text) {
    return std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  };
  Mac mac;
  CHECK(hmac_sha256(bytes(key), bytes(message), mac));
  return hex(mac);
}

// One negotiation with both proofs.
struct Session {
  Key key = key_of(1);
  ConnectBody connect{};
  ChallengeBody challenge{};
  ProofBody proof{};
  AcceptBody accept{};

  Session() {
    connect.boot_nonce = 0x1122334455667788;
    connect.frame_bytes_max = 1U << 20;
    connect.version_min = 1;
    connect.version_max = 3;
    connect.heartbeat_ms = 100;
    connect.loss_ms = 2000;
    connect.transport = static_cast<std::uint8_t>(wire::Transport::rdma);
    connect.authentication = static_cast<std::uint8_t>(wire::Authentication::hmac_sha256);
    std::memcpy(connect.service, "dspark", 6);
    for (std::size_t i = 0; i < wire::kNonceBytes; ++i) {
      connect.nonce[i] = static_cast<std::uint8_t>(0x40 + i);
      challenge.nonce[i] = static_cast<std::uint8_t>(0x80 + i);
    }
    accept.boot_nonce = 0x99AABBCCDDEEFF01;
    accept.frame_bytes_max = 65536;
    accept.version = 2;
    accept.calls_max = 256;
    accept.transport = connect.transport;
    accept.authentication = connect.authentication;
    CHECK(client_proof(key, connect, challenge, proof));
    CHECK(server_proof(key, connect, challenge, accept));
  }

  bool client_proven() const { return proves_client(key, connect, challenge, proof); }
  bool server_proven() const { return proves_server(key, connect, challenge, accept); }
};

// How many of the bits of `body`, changed one at a time, leave a verdict of true.
template <typename Body, typename Verdict>
std::size_t unnoticed_changes(Body& body, const Verdict& proven) {
  static_assert(std::is_trivially_copyable_v<Body>);
  auto* const bytes = reinterpret_cast<std::uint8_t*>(&body);
  std::size_t unnoticed = 0;
  for (std::size_t bit = 0; bit < 8 * sizeof body; ++bit) {
    const auto mask = static_cast<std::uint8_t>(1U << (bit % 8));
    bytes[bit / 8] ^= mask;
    unnoticed += proven() ? 1U : 0U;
    bytes[bit / 8] ^= mask;
  }
  return unnoticed;
}

}  // namespace

TEST(hmac_agrees_with_the_cases_of_rfc_4231) {
  // Cases 1 to 4, 6 and 7; 5 is about truncation, which nothing here does.
  std::string counting;
  for (char byte = 1; byte <= 25; ++byte) counting += byte;
  CHECK(hmac_of(std::string(20, '\x0B'), "Hi There") ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(hmac_of("Jefe", "what do ya want for nothing?") ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(hmac_of(std::string(20, '\xAA'), std::string(50, '\xDD')) ==
        "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  CHECK(hmac_of(counting, std::string(50, '\xCD')) ==
        "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
  CHECK(hmac_of(std::string(131, '\xAA'), "Test Using Larger Than Block-Size Key - Hash Key First") ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  CHECK(hmac_of(std::string(131, '\xAA'),
                "This is a test using a larger than block-size key and a larger than block-size data. The key needs to "
                "be hashed before being used by the HMAC algorithm.") ==
        "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST(the_proofs_are_the_documented_ones) {
  // Computed with Python: hmac.new(key, label + b"\0" + connect + challenge [+ accept], "sha256") over struct.pack.
  const Session session;
  CHECK(hex(session.proof.mac) == "edb09c6cd97c8689cf880a22f65c5b9c812b0003a45be076e4280e9c60350a56");
  CHECK(hex(session.accept.mac) == "8c109306ecf4fc11c437978a3e1ed7e117451fbe38b36db28d00e1f521d65174");
}

TEST(both_sides_with_one_key_prove_it_to_each_other) {
  const Session session;
  CHECK(session.client_proven());
  CHECK(session.server_proven());
}

TEST(every_bit_of_the_negotiation_is_part_of_the_proofs) {
  Session session;
  const auto client = [&] { return session.client_proven(); };
  const auto server = [&] { return session.server_proven(); };
  CHECK(unnoticed_changes(session.connect, client) == 0);
  CHECK(unnoticed_changes(session.challenge, client) == 0);
  CHECK(unnoticed_changes(session.proof, client) == 0);
  CHECK(unnoticed_changes(session.connect, server) == 0);
  CHECK(unnoticed_changes(session.challenge, server) == 0);
  CHECK(unnoticed_changes(session.accept, server) == 0);
  CHECK(session.client_proven() && session.server_proven());  // the changes were taken back
}

TEST(another_key_proves_nothing) {
  Session session;
  session.key = key_of(2);
  CHECK(!session.client_proven() && !session.server_proven());
  session.key = key_of(1, 63);
  CHECK(!session.client_proven() && !session.server_proven());
  session.key = key_of(1);
  CHECK(session.client_proven() && session.server_proven());
}

TEST(a_proof_of_one_role_is_of_no_use_to_the_other) {
  Session session;
  ProofBody reflected{};
  std::memcpy(reflected.mac, session.accept.mac, sizeof reflected.mac);
  CHECK(!proves_client(session.key, session.connect, session.challenge, reflected));
  std::memcpy(session.accept.mac, session.proof.mac, sizeof session.accept.mac);
  CHECK(!session.server_proven());
}

TEST(a_proof_is_of_no_use_under_another_nonce) {
  Session session;
  Session other;
  CHECK(fill_nonce(other.challenge.nonce));
  CHECK(!proves_client(other.key, other.connect, other.challenge, session.proof));
  CHECK(!proves_server(other.key, other.connect, other.challenge, session.accept));
}

TEST(a_server_proof_does_not_depend_on_what_was_in_its_place) {
  Session session;
  Session other;
  std::memset(other.accept.mac, 0xFF, sizeof other.accept.mac);
  CHECK(server_proof(other.key, other.connect, other.challenge, other.accept));
  CHECK(std::memcmp(session.accept.mac, other.accept.mac, sizeof other.accept.mac) == 0);
}

TEST(no_key_and_a_mac_of_zeros_prove_nothing) {
  Session session;
  const Key none;
  ProofBody proof{};
  CHECK(!proves_client(session.key, session.connect, session.challenge, proof));
  CHECK(!proves_client(none, session.connect, session.challenge, proof));
  CHECK(client_proof(none, session.connect, session.challenge, proof).status == OFL_INVALID);
  CHECK(std::all_of(std::begin(proof.mac), std::end(proof.mac), [](std::uint8_t byte) { return byte == 0; }));
  AcceptBody accept = session.accept;
  std::memset(accept.mac, 0, sizeof accept.mac);
  CHECK(!proves_server(session.key, session.connect, session.challenge, accept));
  CHECK(!proves_server(none, session.connect, session.challenge, accept));
  CHECK(server_proof(none, session.connect, session.challenge, accept).status == OFL_INVALID);
}

TEST(nonces_fill_their_room_and_differ) {
  std::set<std::string> seen;
  std::vector<std::uint8_t> at(wire::kNonceBytes, 0);  // which bytes were ever not zero
  for (int turn = 0; turn < 200; ++turn) {
    ChallengeBody challenge{};
    CHECK(fill_nonce(challenge.nonce));
    for (std::size_t i = 0; i < at.size(); ++i) at[i] |= challenge.nonce[i];
    seen.insert(hex(challenge.nonce));
  }
  CHECK(seen.size() == 200);
  CHECK(std::count(at.begin(), at.end(), 0) == 0);
  std::vector<std::uint8_t> long_one(4096, 0);  // longer than what getrandom gives at once under signals
  CHECK(fill_nonce(long_one));
  CHECK(std::count(long_one.end() - 64, long_one.end(), 0) < 64);
}

TEST(libcrypto_is_available_here) {
  const Outcome outcome = hmac_available();
  if (!outcome) std::printf("%s\n", outcome.text.c_str());
  CHECK(outcome);
}

TEST(a_missing_libcrypto_is_one_sentence_that_names_the_package) {
  const char* const names[] = {"libofl-absent.so.3", "libofl-absent.so.1.1"};
  Libcrypto library;
  const Outcome outcome = open_libcrypto(names, library);
  CHECK(outcome.status == OFL_SYSTEM);
  CHECK(library.hmac == nullptr && library.compare == nullptr && library.sha256 == nullptr);
  for (const char* part : {"libssl3", "libofl-absent.so.3", "libofl-absent.so.1.1", "cannot open shared object file"})
    CHECK(outcome.text.find(part) != std::string::npos);
  CHECK(outcome.text.find('\n') == std::string::npos);
}

TEST(a_library_that_is_no_libcrypto_is_passed_over) {
  const char* const names[] = {"libm.so.6"};
  Libcrypto library;
  const Outcome outcome = open_libcrypto(names, library);
  CHECK(outcome.status == OFL_SYSTEM);
  CHECK(outcome.text.find("libm.so.6 lacks HMAC") != std::string::npos);
  const char* const both[] = {"libm.so.6", "libcrypto.so.3", "libcrypto.so.1.1"};
  CHECK(open_libcrypto(both, library));
  CHECK(library.hmac != nullptr && library.compare != nullptr && library.sha256 != nullptr);
}

TEST(a_library_that_computes_something_else_is_noticed) {
  using Text = const unsigned char*;
  Libcrypto library;
  const char* const names[] = {"libcrypto.so.3", "libcrypto.so.1.1"};
  CHECK(open_libcrypto(names, library) && computes_hmac(library));
  Libcrypto wrong = library;
  wrong.hmac = [](const void*, const void*, int, Text, std::size_t, unsigned char* mac, unsigned int* bytes) {
    *bytes = 32;
    return mac;
  };
  CHECK(!computes_hmac(wrong));
  wrong.hmac = [](const void*, const void*, int, Text, std::size_t, unsigned char*, unsigned int*) {
    return static_cast<unsigned char*>(nullptr);
  };
  CHECK(!computes_hmac(wrong));
}

TEST(keys_move_and_are_never_copied) {
  static_assert(!std::is_copy_constructible_v<Key> && !std::is_copy_assignable_v<Key>);
  Key first = key_of(1, 32);
  const std::uint8_t* const memory = first.bytes().data();
  Key second(std::move(first));
  CHECK(first.empty() && first.room().empty());
  CHECK(second.bytes().data() == memory && second.bytes().size() == 32);
  Key third = key_of(9, 40);
  third = std::move(second);
  CHECK(second.empty() && third.bytes().data() == memory && third.bytes()[31] == 32);
}
