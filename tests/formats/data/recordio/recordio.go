// Writes and reads the Go dialect of RecordIO with Go's own snappy, gzip and CRC-32.
//
//	recordio write none|snappy|gzip MAXCHUNK < RECORDS > FILE
//	recordio read < FILE > RECORDS
//
// RECORDS are the records, each after its length in 4 bytes, little-endian.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"hash/crc32"
	"io"
	"log"
	"os"
	"strconv"

	"github.com/golang/snappy"
)

const magic = 0x01020304

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func nextRecord(r io.Reader) []byte {
	var size uint32
	err := binary.Read(r, binary.LittleEndian, &size)
	if err == io.EOF {
		return nil
	}
	check(err)
	record := make([]byte, size)
	_, err = io.ReadFull(r, record)
	check(err)
	return record
}

func writeChunk(out io.Writer, compressor uint32, records [][]byte) {
	if len(records) == 0 {
		return
	}
	var content, payload bytes.Buffer
	for _, record := range records {
		check(binary.Write(&content, binary.LittleEndian, uint32(len(record))))
		content.Write(record)
	}
	switch compressor {
	case 0:
		payload = content
	case 1:
		w := snappy.NewBufferedWriter(&payload)
		w.Write(content.Bytes())
		check(w.Close())
	case 2:
		w := gzip.NewWriter(&payload)
		w.Write(content.Bytes())
		check(w.Close())
	}
	header := []uint32{magic, crc32.ChecksumIEEE(payload.Bytes()), compressor, uint32(payload.Len()), uint32(len(records))}
	check(binary.Write(out, binary.LittleEndian, header))
	_, err := out.Write(payload.Bytes())
	check(err)
}

func write(compressor uint32, most int) {
	var chunk [][]byte
	size := 0
	for record := nextRecord(os.Stdin); record != nil; record = nextRecord(os.Stdin) {
		if size+len(record) > most {
			writeChunk(os.Stdout, compressor, chunk)
			chunk, size = nil, 0
		}
		chunk = append(chunk, record)
		size += len(record)
	}
	writeChunk(os.Stdout, compressor, chunk)
}

func read() {
	for {
		var header [5]uint32
		err := binary.Read(os.Stdin, binary.LittleEndian, &header)
		if err == io.EOF {
			return
		}
		check(err)
		payload := make([]byte, header[3])
		_, err = io.ReadFull(os.Stdin, payload)
		check(err)
		if header[0] != magic || crc32.ChecksumIEEE(payload) != header[1] {
			log.Fatal("bad magic or checksum")
		}
		var content io.Reader = bytes.NewReader(payload)
		switch header[2] {
		case 1:
			content = snappy.NewReader(content)
		case 2:
			content, err = gzip.NewReader(content)
			check(err)
		}
		for i := uint32(0); i < header[4]; i++ {
			record := nextRecord(content)
			if record == nil {
				log.Fatal("a record is missing")
			}
			check(binary.Write(os.Stdout, binary.LittleEndian, uint32(len(record))))
			os.Stdout.Write(record)
		}
		if rest, err := io.ReadAll(content); err != nil || len(rest) != 0 {
			log.Fatal("bytes follow the last record", err)
		}
	}
}

func main() {
	if os.Args[1] == "read" {
		read()
		return
	}
	most, err := strconv.Atoi(os.Args[3])
	check(err)
	write(map[string]uint32{"none": 0, "snappy": 1, "gzip": 2}[os.Args[2]], most)
}
