#include "check.hpp"

int main(int count, char** words) { return check::main_of(count, words); }
