import XCTest

@testable import Digits

/// A handwritten 0.
private let zero: [Float] = [
  0, 0, 5, 13, 9, 1, 0, 0,
  0, 0, 13, 15, 10, 15, 5, 0,
  0, 3, 15, 2, 0, 11, 8, 0,
  0, 4, 12, 0, 0, 8, 8, 0,
  0, 5, 8, 0, 0, 9, 8, 0,
  0, 4, 11, 0, 1, 12, 7, 0,
  0, 2, 14, 5, 10, 12, 0, 0,
  0, 0, 6, 13, 10, 0, 0, 0,
]

final class DigitsTests: XCTestCase {
  func testReadsAZero() throws {
    let scores = try Digits().scores(of: zero + zero)
    XCTAssertEqual(scores.count, 20)
    XCTAssertEqual(scores[0..<10].firstIndex(of: scores[0..<10].max()!), 0)
    XCTAssertEqual(Array(scores[0..<10]), Array(scores[10..<20]))
  }

  func testSaysWhatDoesNotFit() throws {
    let digits = try Digits()
    let many = [Float](repeating: 0, count: 1000 * Digits.pixels)
    XCTAssertThrowsError(try digits.scores(of: many)) {
      XCTAssertEqual(($0 as? IngotError)?.code, "OutOfMemory")
    }
    XCTAssertEqual(try digits.scores(of: zero).count, 10)
  }
}
