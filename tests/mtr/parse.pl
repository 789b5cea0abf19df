#!/usr/bin/env perl
# Reads the runner's output, prints `result TAB test TAB combination TAB note`, one line per test. A test that failed
# and passed when repeated counts as passed, with a note; that is how the baseline was counted. The note of one that
# failed is what the runner said of it: the statement, the lines that differ, or the lines of a server's log.
use strict;
use warnings;

my (%result, %note, %failures);
my $reading = ''; # the failed test whose reason the next lines give
while (my $line = <>) {
    $line =~ s/\r?\n$//;
    if ($reading) {
        my $told = $line =~ /^mysqltest: |^[-+](?!-- |\+\+ )|^\d{4}-\d\d-\d\d .*\[(ERROR|Warning)\]|^Server \[|^Timeout/;
        $line =~ tr/\t/ /;
        $note{$reading} = join(' | ', grep { $_ ne '' } $note{$reading}, $line) if $told && length $note{$reading} < 300;
        $reading = '' if $line =~ /^ - |^-----/;
    }
    # galera.MW-285 'innodb,binlogon' w2 [ pass ]    1234
    next unless $line =~ /^([a-z_0-9]+\.\S+)\s+(?:'([^']*)'\s+)?(?:w\d+\s+)?\[ ([a-z0-9-]+) \]\s*(.*)$/;
    my ($test, $combination, $word, $rest) = ($1, $2 // '-', $3, $4);
    my $key = "$test\t$combination";
    if ($word =~ /pass$/) {
        $note{$key} = $failures{$key} ? "passed when repeated, after: $note{$key}" : '';
        $result{$key} = 'pass';
    } elsif ($word =~ /fail$/) {
        $failures{$key}++;
        next if ($result{$key} // '') eq 'pass';
        $result{$key} = 'fail';
        $note{$key} = $rest;
        $reading = $key;
    } elsif ($word eq 'skipped') {
        $result{$key} //= 'skipped';
        $note{$key} //= $rest;
    } elsif ($word eq 'disabled') {
        $result{$key} //= 'disabled';
        $note{$key} //= $rest;
    }
}
print "$result{$_}\t$_\t$note{$_}\n" for sort keys %result;
